package machine

import (
	"bufio"
	"os"
)

// Create writes a file through f.
func Create(name string, f func(w *bufio.Writer)) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	f(w)
	if err := w.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// Exists reports whether there is something at path.
func Exists(path string) bool { _, err := os.Stat(path); return err == nil }
