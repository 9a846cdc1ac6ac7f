"""Figures: axes, colours, bands, and the plots that several studies share."""
