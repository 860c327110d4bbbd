"""The engines that run a query for a chaos run, behind one interface."""
