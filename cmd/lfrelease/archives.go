package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"
)

// dated is the time of everything in an archive: the first that zip can say.
var dated = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// tarball is files as a tar, packed, with root as their owner.
func tarball(files []file) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{
			Name:    f.name,
			Mode:    f.mode,
			Size:    int64(len(f.text)),
			ModTime: dated,
			Uname:   "root",
			Gname:   "root",
			Format:  tar.FormatUSTAR,
		}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err = errors.Join(w.Close(), z.Close())
	return b.Bytes(), err
}

// debian is a package of Debian's: an ar with its version, what it says of itself, and its files. Source: deb(5).
func debian(version, arch string, files []file) ([]byte, error) {
	size := 0
	var placed []file
	for _, f := range files {
		size += len(f.text)
		where := "./usr/share/doc/lfactor/"
		switch {
		case f.mode == 0o755:
			where = "./usr/bin/"
		case strings.HasPrefix(f.name, "man1/"):
			where = "./usr/share/man/"
		}
		placed = append(placed, file{where + f.name, f.mode, f.text})
	}
	text := fmt.Sprintf("Package: lfactor\nVersion: %s\nArchitecture: %s\nMaintainer: lfactor\nInstalled-Size: "+
		"%d\nSection: science\nPriority: optional\nDescription: training of language, vision and diffusion models "+
		"as a graph of actors\n", version, arch, size/1024)
	control, err := tarball([]file{{"./control", 0o644, []byte(text)}})
	if err != nil {
		return nil, err
	}
	data, err := tarball(append(folders(placed), placed...))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range []file{{"debian-binary", 0, []byte("2.0\n")}, {"control.tar.gz", 0, control},
		{"data.tar.gz", 0, data}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", f.name, dated.Unix(), 0, 0, "100644", len(f.text))
		b.Write(f.text)
		if len(f.text)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// folders are those that files lie in, which dpkg does not make by itself.
func folders(files []file) (out []file) {
	seen := map[string]bool{}
	for _, f := range files {
		for i, c := range f.name {
			if dir := f.name[:i+1]; c == '/' && !seen[dir] {
				seen[dir] = true
				out = append(out, file{dir, 0o755, nil})
			}
		}
	}
	return out
}

// wheel is a package of Python's whose scripts are the programs, as ruff's and uv's are. Source: PEP 427.
func wheel(version, platform string, files []file) ([]byte, error) {
	info := fmt.Sprintf("lfactor-%s.dist-info/", version)
	tags := ""
	for _, p := range strings.Split(platform, ".") {
		tags += "Tag: py3-none-" + p + "\n"
	}
	var all []file
	for _, f := range files {
		if f.mode == 0o755 {
			all = append(all, file{fmt.Sprintf("lfactor-%s.data/scripts/%s", version, f.name), 0o755, f.text})
		} else if f.name == "LICENSE" {
			all = append(all, file{info + "licenses/LICENSE", 0o644, f.text})
		}
	}
	all = append(all, file{
		info + "METADATA",
		0o644,
		[]byte(fmt.Sprintf("Metadata-Version: 2.1\nName: lfactor\nVersion: %s\n"+
			"Summary: Training of language, vision and diffusion models as a graph of actors\nRequires-Python: >=3.7\n", version)),
	}, file{
		info + "WHEEL",
		0o644,
		[]byte("Wheel-Version: 1.0\nGenerator: lfrelease\nRoot-Is-Purelib: false\n" + tags),
	})
	record := ""
	for _, f := range all {
		sum := sha256.Sum256(f.text)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.text))
	}
	all = append(all, file{info + "RECORD", 0o644, []byte(record + info + "RECORD,,\n")})
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range all {
		h := &zip.FileHeader{Name: path.Clean(f.name), Method: zip.Deflate, Modified: dated}
		h.SetMode(fs.FileMode(f.mode))
		x, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := x.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
