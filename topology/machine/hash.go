package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
)

// HashFile is the hexadecimal SHA-256 of a file: binaries are told apart by it.
func HashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
