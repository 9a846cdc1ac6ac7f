"""Models trained by gradient: the optional extra ``esnlm[torch]``; the core imports none of it."""
