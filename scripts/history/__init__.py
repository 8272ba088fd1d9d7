"""What the comparison of recurrent networks with the Transformer is made of."""
