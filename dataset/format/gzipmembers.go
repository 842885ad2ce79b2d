package format

import (
	"bufio"
	"bytes"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipMembers gives the content of an archive of records that are compressed each for itself, member by member
// (RFC 1952, section 2.2). One that is damaged ends there, with a mark that no record has, so that what came of it
// is torn whatever its checksum missed; the next begins where the next header is.
type gzipMembers struct {
	f        io.ReaderAt
	at, size int64 // where the member begins, and the file ends
	member   *gzip.Reader
	raw      *bufio.Reader // gzip reads a member from it and no byte more
	section  *io.SectionReader
	tracked  *trackedReader // over section
	gave     bool           // some of the member's content
	mark     string         // what is still to be given of a mark
}

// skipDamage has what follows damage in a file of gzip read too; other codecs have no members that are known.
func (x *expansion) skipDamage(f io.ReaderAt, size int64) {
	c, err := codecOf(f)
	if err == nil && c != nil && c.suffixes[0] == ".gz" {
		x.out = &gzipMembers{f: f, size: size}
	}
}

// gzipBegin is what a member's header begins with: the magic number, and that it is deflated.
var gzipBegin = []byte{0x1f, 0x8b, 8}

// Read implements io.Reader; its errors are those of the file.
func (g *gzipMembers) Read(p []byte) (int, error) {
	for {
		if g.mark != "" {
			n := copy(p, g.mark)
			g.mark = g.mark[n:]
			return n, nil
		}
		if g.member == nil {
			if more, err := g.next(); !more || err != nil {
				return 0, err
			}
		}
		n, err := g.member.Read(p)
		switch {
		case err == io.EOF:
			at, _ := g.section.Seek(0, io.SeekCurrent) // a section tells its place
			g.at += at - int64(g.raw.Buffered())
			g.member = nil
		case g.tracked.err != nil:
			return n, g.tracked.err
		case err != nil:
			g.at++
			g.member = nil
			g.mark = "damaged\r\n"
			if !g.gave && n == 0 { // else it would be a fault of the record before
				g.mark = warcMagic + "1.0\r\n" + g.mark
			}
		}
		if n > 0 {
			g.gave = g.member != nil
			return n, nil
		}
	}
}

// next opens the member that begins first at or behind g.at. At the end of the file it gives io.EOF.
func (g *gzipMembers) next() (bool, error) {
	for b := make([]byte, 1<<16); ; {
		n, err := g.f.ReadAt(b[:max(0, min(int64(len(b)), g.size-g.at))], g.at)
		if err != nil && err != io.EOF {
			return false, err
		}
		k := bytes.Index(b[:n], gzipBegin)
		if k < 0 {
			if g.at += int64(max(1, n-len(gzipBegin)+1)); g.at >= g.size {
				return false, io.EOF
			}
			continue
		}
		g.at += int64(k)
		g.section = io.NewSectionReader(g.f, g.at, g.size-g.at)
		g.tracked = &trackedReader{in: g.section}
		g.raw = bufio.NewReader(g.tracked)
		if g.member, err = gzip.NewReader(g.raw); err == nil {
			g.member.Multistream(false)
			g.gave = false
			return true, nil
		}
		if g.tracked.err != nil {
			return false, g.tracked.err
		}
		g.member = nil
		g.at++
	}
}
