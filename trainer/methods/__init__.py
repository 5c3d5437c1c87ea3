"""The methods of an error matrix: plans for networks, rivals without a network, and the naive yardstick."""
