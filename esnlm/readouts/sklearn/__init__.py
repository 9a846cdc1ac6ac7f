"""Any scikit-learn classifier as a readout, and readouts as classifiers."""
