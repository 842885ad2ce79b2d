package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
)

// blob is content that others name by its hash.
type blob struct {
	MediaType string         `json:"mediaType"`
	Digest    string         `json:"digest"`
	Size      int            `json:"size"`
	Platform  map[string]any `json:"platform,omitempty"`
	Notes     map[string]any `json:"annotations,omitempty"`
}

// image is an OCI image of one layer, as a tar of its layout, which `podman load`, `skopeo copy oci-archive:` and
// containerd take. Nothing is in it but the programs, which have Mozilla's certificates for where none are mounted; it
// runs as user 1000. Source: OCI image specification 1.1.
func image(version, arch string, files []file) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	put := func(h *tar.Header, text []byte) error {
		h.ModTime, h.Format = dated, tar.FormatUSTAR
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	for _, dir := range []struct {
		name string
		mode int64
		uid  int
	}{{"usr/", 0o755, 0}, {"usr/bin/", 0o755, 0}, {"tmp/", 0o1777, 0}, {"home/", 0o755, 0}, {"home/lfactor/",
		0o755, 1000}} {
		h := &tar.Header{Name: dir.name, Typeflag: tar.TypeDir, Mode: dir.mode, Uid: dir.uid, Gid: dir.uid}
		if err := put(h, nil); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if f.mode != 0o755 {
			continue
		}
		if err := put(&tar.Header{Name: "usr/bin/" + f.name, Mode: f.mode, Size: int64(len(f.text))},
			f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	var blobs []file
	add := func(kind string, text []byte) blob {
		sum := fmt.Sprintf("%x", sha256.Sum256(text))
		blobs = append(blobs, file{"blobs/sha256/" + sum, 0o644, text})
		return blob{MediaType: kind, Digest: "sha256:" + sum, Size: len(text)}
	}
	layers := add("application/vnd.oci.image.layer.v1.tar", layer.Bytes())
	config := add("application/vnd.oci.image.config.v1+json",
		asJSON(map[string]any{"created": dated.Format("2006-01-02T15:04:05Z"), "architecture": arch,
			"os": "linux", "config": map[string]any{"Entrypoint": []string{"/usr/bin/lfactor"}, "User": "1000:1000",
				"Env": []string{"PATH=/usr/bin", "HOME=/home/lfactor"}, "WorkingDir": "/home/lfactor",
				"Labels": map[string]string{"org.opencontainers.image.version": version}},
			"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{layers.Digest}},
			"history": []any{map[string]any{"created_by": "lfrelease"}}}))
	manifest := add("application/vnd.oci.image.manifest.v1+json", asJSON(map[string]any{"schemaVersion": 2,
		"mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []blob{layers}}))
	manifest.Platform = map[string]any{"architecture": arch, "os": "linux"}
	manifest.Notes = map[string]any{"org.opencontainers.image.ref.name": version}
	all := append([]file{{"oci-layout", 0o644, asJSON(map[string]string{"imageLayoutVersion": "1.0.0"})},
		{"index.json", 0o644, asJSON(map[string]any{"schemaVersion": 2,
			"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []blob{manifest}})}}, blobs...)
	var b bytes.Buffer
	w = tar.NewWriter(&b)
	for _, f := range all {
		if err := put(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.text))}, f.text); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close())
	return b.Bytes(), err
}

// asJSON is a value of maps, lists and strings.
func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("lfrelease: " + err.Error())
	}
	return text
}
