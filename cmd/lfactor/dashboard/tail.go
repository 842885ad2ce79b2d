package dashboard

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
)

// tailMark is how much before its place a tail compares, to notice that a file was written anew.
const tailMark = 96

// tailBlock is how much of a file is read at a time.
const tailBlock = 1 << 20

// tail reads the lines that are appended to a file.
type tail struct {
	path string
	at   int64  // behind the last whole line that was read
	mark []byte // the end of what was read
}

// read gives the whole lines that have come since. If the file has been cut or written anew, as the metrics of a run
// that goes back are, reset is called first and all lines come again. A file that does not exist has none.
func (t *tail) read(reset func(), line func([]byte)) error {
	f, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	if t.at > 0 {
		now := make([]byte, len(t.mark))
		if _, err := f.ReadAt(now, t.at-int64(len(now))); err != nil || !bytes.Equal(now, t.mark) {
			t.at, t.mark = 0, nil
			reset()
		}
	}
	// A page looks twice a second, for the most part at a few lines: the buffer is no larger than what has come.
	i, err := f.Stat()
	if err != nil {
		return err
	}
	buf, left := make([]byte, min(max(i.Size()-t.at, 0)+1, tailBlock)), []byte(nil)
	for {
		n, err := f.ReadAt(buf, t.at+int64(len(left)))
		left = append(left, buf[:n]...)
		done := 0
		for {
			end := bytes.IndexByte(left[done:], '\n')
			if end < 0 {
				break
			}
			line(left[done : done+end])
			done += end + 1
		}
		t.at += int64(done)
		if done > 0 {
			t.mark = append([]byte(nil), left[max(0, done-tailMark):done]...)
		}
		left = append(left[:0], left[done:]...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
