package configs

import (
	"embed"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

//go:embed software/*.yaml
var softwareFiles embed.FS

// Softwares lists the described programs that come with lfactor.
func Softwares() []string { return described(softwareFiles, "software") }

// SoftwareFile is the text of a description of software, and its file: NAME or NAME@VERSION of one that comes with
// lfactor, or the path of one. A version without a file of its own has that of the name, which lists it.
func SoftwareFile(name string) (file string, text []byte, err error) {
	if strings.ContainsAny(name, "/") || strings.HasSuffix(name, ".yaml") {
		text, err = source.ReadFile(name)
		return name, text, err
	}
	if text, err = softwareFiles.ReadFile("software/" + name + ".yaml"); err == nil {
		return name + ".yaml", text, nil
	}
	plain, version, _ := strings.Cut(name, "@")
	if text, err = softwareFiles.ReadFile("software/" + plain + ".yaml"); err != nil {
		return "", nil, &Error{File: "--software", Key: name, Why: "is no software that comes with lfactor, and no file",
			Try: source.OneOf(Softwares())}
	}
	if all := Listed(text, "versions"); !slices.Contains(all, version) {
		return "", nil, &Error{File: "--software", Key: name, Why: "of " + plain + " there is no version " + version,
			Try: source.OneOf(all)}
	}
	return plain + ".yaml", text, nil
}

// Listed are the words behind a key at the left margin of a description.
func Listed(text []byte, key string) []string {
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			v, _, _ = strings.Cut(v, "#")
			return strings.Fields(v)
		}
	}
	return nil
}
