package store

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Addresses of files may refer to secrets, so that run files, and what is written or told of them, carry
// none: ${env:NAME} is a variable of the process that reads, ${file:PATH} the content of a file of its host.
// A reference is resolved for each request alone; names, logs, caches and indexes have it as it was written.

var reference = regexp.MustCompile(`\$\{([^{}]*)\}`)

// secretMost bounds a secret, in bytes.
const secretMost = 64 << 10

// SecretError says what is wrong with a reference, without any secret.
type SecretError struct {
	Reference string // as it was written
	Why       string
}

// Error implements error.
func (e *SecretError) Error() string { return e.Reference + ": " + e.Why }

// resolved is an address with the secrets that it refers to, escaped as any part of an address wants it.
func resolved(name string) (string, error) {
	var fault error
	out := reference.ReplaceAllStringFunc(name, func(ref string) string {
		text, why := secret(ref[2 : len(ref)-1])
		if why != "" && fault == nil {
			fault = &SecretError{ref, why}
		}
		return escape(text)
	})
	if fault != nil {
		return "", fault
	}
	return out, nil
}

// secret reads what a reference names; why says what is wrong with it.
func secret(ref string) (text, why string) {
	kind, at, _ := strings.Cut(ref, ":")
	switch {
	case kind == "env" && at != "":
		if text = os.Getenv(at); text == "" {
			return "", "the variable is not set, or empty, in the process that reads: set it on every host of the run"
		}
		return text, ""
	case kind == "file" && filepath.IsAbs(at):
		f, err := os.Open(at)
		if err != nil {
			return "", err.Error() + ": it has to be on every host of the run"
		}
		defer f.Close()
		b := make([]byte, secretMost+1)
		n, err := f.Read(b)
		text = strings.TrimRight(string(b[:n]), "\r\n")
		if n > secretMost || text == "" {
			return "", fmt.Sprintf("the file is empty, or larger than %d bytes (%v)", secretMost, err)
		}
		return text, ""
	}
	return "", "want ${env:NAME}, or ${file:PATH} with a path from the root"
}

// escape writes bytes that have a meaning in addresses as %XX.
func escape(s string) string { return strings.ReplaceAll(s3Escape(s), "/", "%2F") }

// marked is an address with words in place of its references, so that it can be parsed, and what puts them back.
func marked(name string) (string, *strings.Replacer) {
	var back []string
	out := reference.ReplaceAllStringFunc(name, func(ref string) string {
		word := fmt.Sprintf("lfactor-secret-%d-", len(back)/2)
		back = append(back, word, ref)
		return word
	})
	return out, strings.NewReplacer(back...)
}
