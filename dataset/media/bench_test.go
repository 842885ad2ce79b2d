package media

import (
	"flag"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var images = flag.String("images", "", "folder of the images to measure; bench/media.py makes one")

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkImages decodes images, and decodes and resizes them to 224×224; cpu-ms/op counts the garbage collector too.
func BenchmarkImages(b *testing.B) {
	files := []string{"testdata/photo.jpg"}
	if *images != "" {
		var err error
		files, err = filepath.Glob(filepath.Join(*images, "*.*[gp]"))
		require.NoError(b, err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(b, err)
		for _, what := range []string{"decode", "both"} {
			b.Run(filepath.Base(f)+"/"+what, func(b *testing.B) {
				start := cpuTime()
				for b.Loop() {
					p, err := Decode(data, Options{})
					require.NoError(b, err)
					if what == "both" {
						p.Resize(224, 224, Bicubic).Release()
					}
					p.Release()
				}
				b.ReportMetric(float64(cpuTime()-start)/1e6/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
