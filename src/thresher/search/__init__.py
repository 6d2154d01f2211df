"""Budgets, tickets, and the search for masks that cuts them."""
