"""Files of fastText, `.bin` and `.ftz`: their content, their hashes and their arithmetic."""
