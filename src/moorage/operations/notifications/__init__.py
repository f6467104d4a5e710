"""What others are told of servers, in Nova's words: `stories` say what happened, `notification_writer` keeps it, the formats word it."""
