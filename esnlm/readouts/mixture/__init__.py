"""Mixture of experts, trained by expectation-maximisation."""
