"""GET and POST /predict."""
