"""What the machines of a testbed can do, in the user's words: Server, Host, Guest, LoadGen."""
