"""How weights are stored and multiplied. A method object makes linear layers; models never learn which one."""
