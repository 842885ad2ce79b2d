package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// tarBlock is the unit of a tar archive, in bytes.
const tarBlock = 512

// tarExtraMax bounds an extension header (PAX or GNU long name), in bytes: Go's and GNU's own limit.
const tarExtraMax = 1 << 20

// entry is one member of an archive.
type entry struct {
	start, data, size int64  // of its first header and of its content in the archive; bytes of content
	name              string // "" where it could not be told
	kind              byte   // the header's type flag, '0' for a regular file
	fault             string // why its content cannot be used; "" for a good one
}

// end is where the next header stands.
func (m entry) end() int64 { return m.data + padded(m.size) }

func padded(n int64) int64 { return (n + tarBlock - 1) &^ (tarBlock - 1) }

// tarKinds names what is not a regular file.
var tarKinds = map[byte]string{'1': "a hard link", '2': "a symbolic link", '3': "a character device",
	'4': "a block device", '5': "a directory", '6': "a pipe", 'S': "a sparse file"}

// tarReader walks the members of an archive without reading their content. Unlike archive/tar it knows where
// in the file it is, and names what is wrong with a member instead of ending there wherever the next one can
// be found. It understands ustar, GNU long names and sizes, and PAX path and size. Formats: POSIX.1-2001
// pax; GNU tar manual, "Basic Tar Format".
type tarReader struct {
	in   io.ReaderAt
	at   int64 // of the next header
	size int64 // of the archive, or negative where only reading on tells
	h    [tarBlock]byte

	moved bool // the header is that of another archive, behind the end of one
	ends  int  // archives that others followed
}

// brokenError says that nothing behind a place of the archive can be read.
type brokenError struct {
	at     int64
	reason string
}

func (e *brokenError) Error() string { return fmt.Sprintf("at byte %d %s", e.at, e.reason) }

// extra is what extension headers say of the member behind them.
type extra struct {
	name, fault string
	size        int64 // -1: nothing
}

// next returns the next member, io.EOF at the archive's end (a block of zeros behind which no other archive
// follows, or the end of the file), or a *brokenError.
func (t *tarReader) next() (entry, error) {
	m := entry{start: t.at}
	x := extra{size: -1}
	for {
		h, err := t.header(m.start)
		if err != nil {
			return m, err
		}
		if t.moved { // to another archive, which follows
			m.start, t.moved = t.at, false
		}
		size, ok := tarNumber(h[124:136])
		if !ok {
			return m, &brokenError{t.at, "a header gives a size that is not a number"}
		}
		m.kind, m.data, m.size = h[156], t.at+tarBlock, size
		if headerOnly(m.kind) {
			m.size = 0 // whatever it says
		}
		if m.kind != 'L' && m.kind != 'K' && m.kind != 'x' && m.kind != 'g' {
			if x.size >= 0 && !headerOnly(m.kind) {
				m.size = x.size
			}
			return m, t.finish(&m, h, x)
		}
		if err := t.extension(m, &x); err != nil {
			return m, err
		}
		t.at = m.end()
	}
}

// headerOnly says of links, devices, directories and pipes that no content follows.
func headerOnly(kind byte) bool { return kind >= '1' && kind <= '6' }

func tarRegular(kind byte) bool { return kind == '0' || kind == 0 || kind == '7' }

// header reads and checks the block at t.at. start is where the member's first header stands.
func (t *tarReader) header(start int64) ([]byte, error) {
	h := t.h[:]
	n, err := t.in.ReadAt(h, t.at)
	if n < tarBlock {
		var damage *streamError
		if errors.As(err, &damage) {
			return nil, &brokenError{t.at, "the compressed data " + damage.reason}
		}
		if err != io.EOF {
			return nil, err
		}
		if n == 0 && t.at == start {
			return nil, io.EOF
		}
		return nil, &brokenError{t.at, "the shard ends within a header"}
	}
	if h[0] == 0 && len(bytes.Trim(h, "\x00")) == 0 {
		if t.at != start {
			return nil, &brokenError{t.at, "an extension header has no member behind it"}
		}
		if !t.joined() {
			return nil, io.EOF
		}
	}
	want, ok := tarNumber(h[148:156])
	unsigned, signed := checkSums(h)
	if !ok || want != unsigned && want != signed {
		return nil, &brokenError{t.at,
			"there is no tar header (the check sum differs); the rest of the shard is not read"}
	}
	return h, nil
}

// joinedMax bounds the zeros between two archives that were joined; writers pad to 10 KiB, some to 1 MiB.
const joinedMax = 1 << 20

// joined finds another archive behind the end of one, as cat leaves them, and goes to it. Python's readers
// stop at the first end.
func (t *tarReader) joined() bool {
	for at := t.at + tarBlock; at <= t.at+joinedMax; at += tarBlock {
		if n, err := t.in.ReadAt(t.h[:], at); n < tarBlock || err != nil && err != io.EOF {
			return false // the file ends, or nothing of an archive can be read
		}
		if t.h[0] == 0 && len(bytes.Trim(t.h[:], "\x00")) == 0 {
			continue
		}
		want, ok := tarNumber(t.h[148:156])
		if unsigned, signed := checkSums(t.h[:]); !ok || want != unsigned && want != signed {
			return false
		}
		t.at, t.moved, t.ends = at, true, t.ends+1
		return true
	}
	return false
}

// checkSums returns the sums of a header's bytes, unsigned and as some old writers had it signed, with
// spaces for the field that holds the sum.
func checkSums(h []byte) (unsigned, signed int64) {
	var sums, high uint64 // four sums of 16 bits, of 64 words of two bytes of at most 255 each
	for i := 0; i < tarBlock; i += 8 {
		w := binary.LittleEndian.Uint64(h[i:])
		sums += w&0x00ff00ff00ff00ff + w>>8&0x00ff00ff00ff00ff
		high += w >> 7 & 0x0101010101010101
	}
	unsigned = int64(sums&0xffff + sums>>16&0xffff + sums>>32&0xffff + sums>>48)
	for s := high; s != 0; s >>= 8 {
		signed -= int64(s & 0xff)
	}
	signed = signed*256 + unsigned
	for _, c := range h[148:156] {
		unsigned, signed = unsigned+' '-int64(c), signed+' '-int64(int8(c))
	}
	return unsigned, signed
}

// tarNumber reads a number in octal, or in base 256 where the first bit is set. It is never negative.
func tarNumber(b []byte) (int64, bool) {
	if b[0]&0x80 == 0 {
		b = bytes.Trim(b, " \x00")
		n := int64(0)
		for _, c := range b { // at most twelve digits
			if c < '0' || c > '7' {
				return 0, false
			}
			n = n<<3 | int64(c-'0')
		}
		return n, true
	}
	n := int64(b[0] & 0x7f)
	for _, c := range b[1:] {
		if n >= 1<<54 {
			return 0, false
		}
		n = n<<8 | int64(c)
	}
	return n, n < 1<<56
}

// extension takes what an extension header says into x. One that is too long or unreadable is the next member's fault.
func (t *tarReader) extension(m entry, x *extra) error {
	if m.size > tarExtraMax {
		x.fault = fmt.Sprintf("its extension header has %d bytes, over the limit of %d", m.size, int64(tarExtraMax))
		return t.within(m)
	}
	b := make([]byte, m.size)
	if _, err := t.in.ReadAt(b, m.data); err == io.EOF {
		return &brokenError{m.data, "the shard ends within an extension header"}
	} else if err != nil {
		return err
	}
	switch m.kind {
	case 'L':
		x.name = cString(b)
	case 'x':
		x.pax(b)
	}
	return nil
}

// within tells whether a member's content lies in the archive, where that is known.
func (t *tarReader) within(m entry) error {
	if t.size >= 0 && m.size > t.size-m.data {
		return &brokenError{m.start, fmt.Sprintf("a member of %d bytes is announced and %d bytes are left",
			m.size, max(0, t.size-m.data))}
	}
	return nil
}

// cString is the text up to the first zero byte.
func cString(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// pax reads records of the form "length key=value\n".
func (x *extra) pax(b []byte) {
	for len(b) > 0 {
		digits, _, ok := bytes.Cut(b, []byte(" "))
		n, err := strconv.Atoi(string(digits))
		if !ok || err != nil || n <= len(digits)+1 || n > len(b) || b[n-1] != '\n' {
			x.fault = "its PAX header is malformed"
			return
		}
		key, value, _ := strings.Cut(string(b[len(digits)+1:n-1]), "=")
		b = b[n:]
		switch {
		case key == "path":
			x.name = value
		case key == "size":
			if x.size, err = strconv.ParseInt(value, 10, 64); err != nil || x.size < 0 || x.size >= 1<<56 {
				x.size, x.fault = -1, "its PAX header gives a size that is not a number"
			}
		case strings.HasPrefix(key, "GNU.sparse."):
			x.fault = "it is a sparse file"
		}
	}
}

// finish completes a member from its header and its extensions, and goes on behind it.
func (t *tarReader) finish(m *entry, h []byte, x extra) error {
	m.name, m.fault = x.name, x.fault
	if m.name == "" {
		m.name = cString(h[:100])
		if gnu := string(h[257:265]) == "ustar  \x00"; h[345] != 0 && !gnu {
			m.name = cString(h[345:500]) + "/" + m.name
		}
	}
	switch {
	case m.kind == 0 && strings.HasSuffix(m.name, "/"):
		m.kind = '5'
	case tarRegular(m.kind):
		m.kind = '0'
	}
	if m.fault == "" && m.kind != '0' && m.kind != '5' {
		kind, ok := tarKinds[m.kind]
		if !ok {
			kind = fmt.Sprintf("of the unknown kind %q", m.kind)
		}
		m.fault = "it is " + kind
	}
	t.at = m.end()
	return t.within(*m)
}
