"""Agents in processes of their own: what is said to them, who starts them, and their own side."""
