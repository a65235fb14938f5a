"""Acting: exploration noise, memories of episodes, policies as their users call them."""
