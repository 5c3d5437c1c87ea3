"""Export of a fitted network as ONNX graphs and a manifest, and the session that reads them back."""
