"""What others are told of servers, in Nova's words: `stories` say what happened, `herald` keeps it, the formats word it."""
