package configs

import "regexp"

var (
	urlUser  = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)(?:\$\{[^{}]*\}|[^\s/'"])*@`)
	urlQuery = regexp.MustCompile(`(?i)(https?://[^\s'"?#]*)[?#][^\s'",\]}]*`)
)

// Redact returns a text without the users, passwords, queries and fragments of the URLs in it, which are not
// to be written down or shown.
func Redact(text string) string {
	return urlQuery.ReplaceAllString(urlUser.ReplaceAllString(text, "$1"), "$1")
}
