"""Feature banks: extracted once, read by every detector."""
