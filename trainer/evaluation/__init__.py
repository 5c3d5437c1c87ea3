"""The error matrix: fits of past origins, their scores, the horizon they support, and the gates of a release."""
