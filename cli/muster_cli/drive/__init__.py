"""The commands that change leaders and pods, or give a person's word. The operator carries out what they declare."""
