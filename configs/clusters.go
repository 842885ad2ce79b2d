package configs

import (
	"embed"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

//go:embed clusters/*.yaml
var clusterFiles embed.FS

// Clusters lists the described machines that come with lfactor.
func Clusters() []string { return described(clusterFiles, "clusters") }

// described lists the descriptions of a folder that comes with lfactor.
func described(files embed.FS, dir string) (names []string) {
	all, err := files.ReadDir(dir)
	if err != nil {
		panic(err) // embedded
	}
	for _, f := range all {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return
}

// ClusterFile is the text of a cluster that comes with lfactor, or of a file; topology/cost reads it.
func ClusterFile(nameOrPath string) ([]byte, error) {
	if text, err := clusterFiles.ReadFile("clusters/" + nameOrPath + ".yaml"); err == nil {
		return text, nil
	}
	if !strings.ContainsAny(nameOrPath, "./") {
		return nil, &Error{File: nameOrPath, Why: "is no machine that comes with lfactor, and no file",
			Try: source.OneOf(Clusters())}
	}
	return source.ReadFile(nameOrPath)
}
