package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var some = []file{
	{"lfactor", 0o755, []byte("#!/bin/sh\necho it runs\n")},
	{"lfactor-head", 0o755, []byte("#!/bin/sh\n")},
	{"LICENSE", 0o644, []byte("do as you like\n")},
}

// TestArchives: the same files give the same bytes; a tarball, a package and a wheel hold them with their modes.
func TestArchives(t *testing.T) {
	for name, make := range map[string]func() ([]byte, error){
		"tar": func() ([]byte, error) { return tarball(prefixed("lfactor-1.2.3", some)) },
		"deb": func() ([]byte, error) { return debian("1.2.3", "amd64", some) },
		"whl": func() ([]byte, error) {
			return wheel("1.2.3", "manylinux2014_x86_64.musllinux_1_1_x86_64",
				some)
		},
	} {
		a, err := make()
		require.NoError(t, err)
		b, err := make()
		require.NoError(t, err)
		require.True(t, bytes.Equal(a, b), name)
		switch name {
		case "tar":
			z, err := gzip.NewReader(bytes.NewReader(a))
			require.NoError(t, err)
			h, err := tar.NewReader(z).Next()
			require.NoError(t, err)
			require.Equal(t, "lfactor-1.2.3/lfactor", h.Name)
			require.Equal(t, int64(0o755), h.Mode)
			require.True(t, h.ModTime.Equal(dated))
		case "deb":
			require.True(
				t,
				bytes.HasPrefix(
					a,
					[]byte(
						"!<arch>\ndebian-binary   315532800   0     0     100644  4         `\n2.0\ncontrol.tar.gz  ",
					),
				),
			)
		case "whl":
			z, err := zip.NewReader(bytes.NewReader(a), int64(len(a)))
			require.NoError(t, err)
			require.Equal(t, "lfactor-1.2.3.data/scripts/lfactor", z.File[0].Name)
			require.Equal(t, os.FileMode(0o755), z.File[0].Mode())
			f, err := z.Open("lfactor-1.2.3.dist-info/WHEEL")
			require.NoError(t, err)
			text, err := io.ReadAll(f)
			require.NoError(t, err)
			require.Equal(t, 2, strings.Count(string(text), "Tag: py3-none-"))
		}
	}
	require.ErrorContains(t, release("1.2", t.TempDir(), ""), "three numbers")
	require.ErrorContains(t, release("1.2.3", t.TempDir(), "plan9/mips"), "no such platform")
}

// TestVersionName: the linker sets a variable that is there; it says nothing of one that is not.
func TestVersionName(t *testing.T) {
	path, name, _ := strings.Cut(strings.TrimPrefix(versionName, "github.com/lfactor/lfactor/cmd/lfactor/"), ".")
	text, err := os.ReadFile(filepath.Join("..", "lfactor", path, "version.go"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\nvar "+name+" string\n")
}

// TestInstalled: dpkg and pip take the files, where they are there; what is installed runs.
func TestInstalled(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, b []byte, err error) string {
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		return path
	}
	if dpkg, err := exec.LookPath("dpkg-deb"); err == nil {
		b, err := debian("1.2.3", "amd64", some)
		path := put("lfactor_1.2.3_amd64.deb", b, err)
		out, err := exec.Command(dpkg, "--field", path, "Version").CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, "1.2.3\n", string(out))
		out, err = exec.Command(dpkg, "--extract", path, filepath.Join(dir, "root")).CombinedOutput()
		require.NoError(t, err, string(out))
		out, err = exec.Command(filepath.Join(dir, "root/usr/bin/lfactor")).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "it runs\n", string(out))
		installs(t, path, filepath.Join(dir, "system"))
	} else {
		t.Log("there is no dpkg-deb")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		t.Log("the wheel is installed where LFACTOR_PYTHON names a Python with pip")
		return
	}
	b, err := wheel("1.2.3", "any", some)
	path := put("lfactor-1.2.3-py3-none-any.whl", b, err)
	out, err := exec.Command(python, "-m", "pip", "install", "--no-index", "--no-deps", "--prefix",
		filepath.Join(dir, "py"), path).
		CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command(filepath.Join(dir, "py/bin/lfactor")).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "it runs\n", string(out))
}

// installs has dpkg itself install a package into an empty system, which has none of its folders.
func installs(t *testing.T, path, system string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Log("dpkg installs a package where the test is root")
		return
	}
	for _, dir := range []string{"info", "updates"} {
		require.NoError(t, os.MkdirAll(filepath.Join(system, "var/lib/dpkg", dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(system, "var/lib/dpkg/status"), nil, 0o644))
	out, err := exec.Command("dpkg", "--root="+system, "--force-not-root", "-i", path).CombinedOutput()
	require.NoError(t, err, string(out))
	require.FileExists(t, filepath.Join(system, "usr/bin/lfactor"))
	require.FileExists(t, filepath.Join(system, "usr/share/doc/lfactor/LICENSE"))
}

// TestImage: the layout's index leads to a manifest, that to a configuration and a layer, by hashes and
// sizes that hold; the same files give the same bytes.
func TestImage(t *testing.T) {
	a, err := image("1.2.3", "amd64", some)
	require.NoError(t, err)
	again, err := image("1.2.3", "amd64", some)
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, again))
	parts := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(a)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		parts[h.Name], err = io.ReadAll(r)
		require.NoError(t, err)
	}
	require.JSONEq(t, `{"imageLayoutVersion": "1.0.0"}`, string(parts["oci-layout"]))
	follow := func(b blob) []byte {
		text, ok := parts["blobs/"+strings.Replace(b.Digest, ":", "/", 1)]
		require.True(t, ok, b.Digest)
		require.Len(t, text, b.Size)
		require.Equal(t, b.Digest, fmt.Sprintf("sha256:%x", sha256.Sum256(text)))
		return text
	}
	var index struct{ Manifests []blob }
	require.NoError(t, json.Unmarshal(parts["index.json"], &index))
	var manifest struct {
		Config blob
		Layers []blob
	}
	require.NoError(t, json.Unmarshal(follow(index.Manifests[0]), &manifest))
	var config struct {
		Architecture string
		Config       struct{ Entrypoint []string }
		RootFS       struct {
			Diffs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal(follow(manifest.Config), &config))
	require.Equal(t, "amd64", config.Architecture)
	require.Equal(t, []string{manifest.Layers[0].Digest}, config.RootFS.Diffs)
	found := false
	for r := tar.NewReader(bytes.NewReader(follow(manifest.Layers[0]))); !found; {
		h, err := r.Next()
		require.NoError(t, err)
		found = "/"+h.Name == config.Config.Entrypoint[0] && h.Mode == 0o755
	}
}

// TestBill: a bill of materials names the modules that a program is built of, each once; the formula names
// what is built.
func TestBill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lfvet")
	out, err := exec.Command("go", "build", "-o", path, "../lfvet").CombinedOutput()
	require.NoError(t, err, string(out))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	b, err := bill("1.2.3", []file{{"lfactor", 0o755, text}, {"README.md", 0o644, nil}})
	require.NoError(t, err)
	var doc struct {
		SpdxVersion   string
		Packages      []struct{ SPDXID, Name, VersionInfo string }
		Relationships []struct{ RelationshipType, RelatedSpdxElement string }
	}
	require.NoError(t, json.Unmarshal(b, &doc))
	require.Equal(t, "SPDX-2.3", doc.SpdxVersion)
	names := map[string]int{}
	for _, p := range doc.Packages {
		names[p.Name]++
		require.Regexp(t, `^SPDXRef-[a-zA-Z0-9.-]+$`, p.SPDXID)
	}
	require.Equal(t, 1, names["golang.org/x/mod"])
	require.Equal(t, 1, names["stdlib"])
	require.Len(t, doc.Relationships, len(doc.Packages))
	_, err = bill("1.2.3", some)
	require.ErrorContains(t, err, "lfactor")
	rb := string(formula("1.2.3", map[string]string{"darwin/arm64": "abc"}))
	require.Contains(t, rb, "on_macos")
	require.Contains(t, rb, `sha256 "abc"`)
	require.NotContains(t, rb, "on_linux")
}
