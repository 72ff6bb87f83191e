"""What a model is sent of a conversation, and how it is kept within the model's window."""
