// Command lfrelease builds what is released: static binaries for each platform as tarballs with manual
// pages, a Debian package, a wheel and an OCI image for each that has one, a formula for Homebrew, a bill of
// materials, and their checksums. The same commit gives the same bytes, wherever and whenever it is built.
//
//	go run ./cmd/lfrelease -version 1.2.3 -out dist
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// platform is what is built for.
type platform struct {
	os, arch string
	deb      string // Debian's name of the architecture, "" for no package
	wheel    string // Python's name of the platform
}

var platforms = []platform{
	{"linux", "amd64", "amd64", "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"},
	{"linux", "arm64", "arm64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64"},
	{"darwin", "arm64", "", "macosx_11_0_arm64"},
}

// programs are the binaries of a release.
var programs = []string{"lfactor", "lfactor-head"}

func main() {
	version := flag.String("version", "0.0.0", "of the release: three numbers")
	out := flag.String("out", "dist", "folder for the files")
	only := flag.String("only", "", "build for this platform alone, as linux/amd64")
	flag.Parse()
	if err := release(*version, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// release builds everything, and writes SHA256SUMS last.
func release(version, out, only string) error {
	if len(strings.Split(version, ".")) != 3 {
		return fmt.Errorf("-version %s: want three numbers, as in 1.2.3", version)
	}
	if only != "" && !slices.ContainsFunc(platforms, func(p platform) bool { return p.os+"/"+p.arch == only }) {
		return fmt.Errorf("-only %s: no such platform", only)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	pages, err := manuals()
	if err != nil {
		return err
	}
	var made []string
	note := func(name string, b []byte) error {
		made = append(made, fmt.Sprintf("%x  %s\n", sha256.Sum256(b), name))
		return os.WriteFile(filepath.Join(out, name), b, 0o644)
	}
	sums, all := map[string]string{}, []file(nil)
	for _, p := range platforms {
		if only != "" && only != p.os+"/"+p.arch {
			continue
		}
		files, err := build(version, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "built for %s/%s\n", p.os, p.arch)
		all = append(all, files...)
		files = append(files, pages...)
		base := fmt.Sprintf("lfactor-%s-%s-%s", version, p.os, p.arch)
		for _, x := range []struct {
			name  string
			there bool
			bytes func() ([]byte, error)
		}{
			{base + ".tar.gz", true, func() ([]byte, error) { return tarball(prefixed(base, files)) }},
			{fmt.Sprintf("lfactor_%s_%s.deb", version, p.deb), p.deb != "",
				func() ([]byte, error) { return debian(version, p.deb, files) }},
			{fmt.Sprintf("lfactor-%s-py3-none-%s.whl", version, p.wheel), true,
				func() ([]byte, error) { return wheel(version, p.wheel, files) }},
			{base + ".oci.tar", p.os == "linux", func() ([]byte, error) {
				return image(version, p.arch, files)
			}},
		} {
			if !x.there {
				continue
			}
			b, err := x.bytes()
			if err == nil {
				err = note(x.name, b)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			if strings.HasSuffix(x.name, ".tar.gz") {
				sums[p.os+"/"+p.arch] = fmt.Sprintf("%x", sha256.Sum256(b))
			}
		}
	}
	if err := about(version, all, sums, note); err != nil {
		return err
	}
	slices.Sort(made)
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(strings.Join(made, "")), 0o644)
}

// about notes what a release says of itself.
func about(version string, all []file, sums map[string]string, note func(name string, b []byte) error) error {
	text, err := bill(version, all)
	if err != nil {
		return err
	}
	return errors.Join(note(fmt.Sprintf("lfactor-%s.spdx.json", version), text),
		note("lfactor.rb", formula(version, sums)))
}

// file is one of an archive.
type file struct {
	name string
	mode int64
	text []byte
}

// prefixed puts files into a folder.
func prefixed(dir string, files []file) (out []file) {
	for _, f := range files {
		out = append(out, file{dir + "/" + f.name, f.mode, f.text})
	}
	return out
}

// manuals are the manual pages, which the program writes itself.
func manuals() (out []file, err error) {
	dir, err := os.MkdirTemp("", "lfrelease-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := exec.Command("go", "run", "./cmd/lfactor", "reference", "--man", dir)
	c.Env, c.Stderr = append(os.Environ(), "SOURCE_DATE_EPOCH=315532800"), os.Stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("go run ./cmd/lfactor reference: %w; start it at the root of the repository", err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return nil, err
	}
	slices.Sort(found)
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, file{"man1/" + filepath.Base(path), 0o644, text})
	}
	return out, nil
}

// versionName is what holds the version of a program: head and agents of a cluster work together by it.
const versionName = "github.com/lfactor/lfactor/cmd/lfactor/cli.release"

// build links the programs for a platform without cgo, paths and a build's own name, so that their bytes
// follow from the commit and the version of Go alone, and adds the licence.
func build(version string, p platform) (files []file, err error) {
	dir, err := os.MkdirTemp("", "lfrelease-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, name := range programs {
		path := filepath.Join(dir, name)
		c := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -buildid= -X "+versionName+"=v"+version, "-o", path, "./cmd/"+name)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOFLAGS=")
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return nil, fmt.Errorf("go build ./cmd/%s for %s/%s: %w; start it at the root of the repository", name,
				p.os, p.arch, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o755, text})
	}
	for _, name := range []string{"LICENSE", "README.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, 0o644, text})
	}
	return files, nil
}
