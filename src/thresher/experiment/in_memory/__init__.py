"""What `prune_model` needs beside the workflow: checks of a user's model, and models kept in memory."""
