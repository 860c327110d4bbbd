"""Agents in processes of their own: the messages, the parent's side and the process's side."""
