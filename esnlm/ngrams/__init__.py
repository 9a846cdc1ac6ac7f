"""N-gram counts and modified Kneser-Ney smoothing."""
