package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"strings"
)

// bill lists what is linked into a release, as SPDX 2.3: the modules that a program says it was built of.
func bill(version string, files []file) ([]byte, error) {
	type pack = map[string]any
	var packs, ties []pack
	seen := map[string]bool{}
	add := func(name, version string) string {
		id := "SPDXRef-" + strings.NewReplacer("/", "-", "_", "-", "~", "-", "@", "-", "+",
			"-").Replace(name+"-"+version)
		if !seen[id] {
			seen[id] = true
			packs = append(packs, pack{"SPDXID": id, "name": name, "versionInfo": version,
				"downloadLocation": "NOASSERTION",
				"filesAnalyzed":    false, "externalRefs": []pack{{"referenceCategory": "PACKAGE-MANAGER",
					"referenceType": "purl", "referenceLocator": "pkg:golang/" + name + "@" + version}}})
		}
		return id
	}
	root := add("github.com/lfactor/lfactor", "v"+version)
	ties = append(ties, pack{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
		"relatedSpdxElement": root})
	linked := map[string]bool{}
	for _, f := range files {
		if f.mode != 0o755 {
			continue
		}
		info, err := buildinfo.Read(bytes.NewReader(f.text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		ids := []string{add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			ids = append(ids, add(m.Path, m.Version))
		}
		for _, id := range ids {
			if !linked[id] {
				linked[id] = true
				ties = append(ties, pack{"spdxElementId": root, "relationshipType": "DEPENDS_ON",
					"relatedSpdxElement": id})
			}
		}
	}
	text := asJSON(packs)
	return asJSON(pack{"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
		"name": "lfactor-" + version, "documentNamespace": fmt.Sprintf("https://github.com/lfactor/lfactor/spdx/%s-%x",
			version, sha256.Sum256(text)), "creationInfo": pack{"created": dated.Format("2006-01-02T15:04:05Z"),
			"creators": []string{"Tool: lfrelease"}}, "packages": packs, "relationships": ties}), nil
}

// formula is a file of Homebrew's that installs the tarballs; sums are by platform, as linux/amd64.
func formula(version string, sums map[string]string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "class Lfactor < Formula\n  desc \"Training of models as a graph of actors\"\n"+
		"  homepage \"https://github.com/lfactor/lfactor\"\n  version %q\n", version)
	for _, p := range platforms {
		sum, built := sums[p.os+"/"+p.arch]
		if !built {
			continue
		}
		system, cpu := map[string]string{"linux": "on_linux", "darwin": "on_macos"}[p.os],
			map[string]string{"amd64": "on_intel", "arm64": "on_arm"}[p.arch]
		fmt.Fprintf(&b, "  %s do\n    %s do\n      url \"https://github.com/lfactor/lfactor/releases/download/v%s/"+
			"lfactor-%s-%s-%s.tar.gz\"\n      sha256 %q\n    end\n  end\n", system, cpu, version, version,
			p.os, p.arch, sum)
	}
	b.WriteString("  def install\n    bin.install \"lfactor\", \"lfactor-head\"\n    man1.install Dir[\"man1/*.1\"]\n" +
		"    generate_completions_from_executable(bin/\"lfactor\", \"completion\")\n  end\n" +
		"  test do\n    system bin/\"lfactor\", \"version\"\n  end\nend\n")
	return []byte(b.String())
}
