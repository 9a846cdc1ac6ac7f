"""The page of ``esnlm serve``: what a model says of a sentence, over HTTP on this machine."""
