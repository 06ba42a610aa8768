"""How long pods wait over hours and days, replayed in virtual time through the product itself."""
