package sample

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
)

// drawing are the flags for models of diffusion.
type drawing struct {
	diffusion.Drawing
	out, size, prompts string
	noise              string
	count, columns     int
	fps                float64
}

func (d *drawing) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&d.out, "image-out", "", "models of diffusion: draw to this file, a .png, or a .gif or .mp4 of "+
		"a clip; several pictures make a sheet. A folder takes a file each")
	f.StringVar(&d.prompts, "prompts", "", "file of prompts to draw, one a line, in place of --prompt")
	f.IntVar(&d.count, "count", 1, "pictures of each prompt")
	f.IntVar(&d.Steps, "steps", 30, "steps of the sampler")
	f.Float64Var(&d.Guidance, "guidance", 4, "how far to go from what the model draws without the prompt; 1 draws "+
		"the prompt alone, in half the time")
	f.Float64Var(&d.Rescale, "guidance-rescale", 0, "share of the way back to the contrast without guidance")
	f.StringVar(&d.Negative, "negative", "", "what not to draw, with guidance")
	f.StringVar(&d.size, "size", "", "pixels, as 256x384 or 17x256x384; the run's first size by default")
	f.StringVar(&d.Expert, "expert", "", "checkpoint of the model for levels of noise that MODEL is not trained "+
		"at; the other one of its pipeline by default")
	f.IntVar(&d.Batch, "batch", 4, "pictures drawn at once; no picture depends on it")
	f.StringVar(&d.noise, "noise", "", "safetensors file whose tensor latents, [pictures, channels, (frames,) rows, "+
		"columns], pictures begin with in the place of --seed's noise, as pipelines of diffusers take it")
	f.IntVar(&d.columns, "columns", 8, "pictures in a row of a sheet")
	f.Float64Var(&d.fps, "fps", 16, "frames a second of clips")
}

// unused reports a flag of drawing that is set where nothing is drawn.
func unused(c *cobra.Command) error {
	for _, name := range []string{"prompts", "count", "steps", "guidance", "guidance-rescale", "negative", "size",
		"expert", "batch", "noise", "columns", "fps"} {
		if c.Flags().Changed(name) {
			return exit.Usagef("sample: --%s is for pictures: name where they go with --image-out", name)
		}
	}
	return nil
}

// check reports flags that make no sense.
func (d *drawing) check() error {
	if d.Steps < 1 || d.count < 1 || d.Batch < 1 || d.columns < 1 || d.Guidance < 0 || d.Rescale < 0 || d.Rescale > 1 ||
		d.fps <= 0 {
		return exit.Usagef("sample: --steps, --count, --batch and --columns are 1 or more, --guidance is not " +
			"negative, --guidance-rescale lies between 0 and 1, and --fps is above 0")
	}
	if d.size == "" {
		return nil
	}
	var err error
	if d.Size, err = configs.ParseSize(d.size); err != nil {
		return exit.Usagef("sample: --size: %v", err)
	}
	return nil
}

// captions are the prompts, each as often as it is to be drawn.
func (d *drawing) captions(prompt string) ([]string, error) {
	lines := []string{prompt}
	if d.prompts != "" {
		if prompt != "" {
			return nil, exit.Usagef("sample: --prompt and --prompts exclude each other")
		}
		file, err := os.Open(d.prompts)
		if err != nil {
			return nil, exit.With(err, exit.Usage)
		}
		defer file.Close() //nolint:errcheck // it was read only
		lines = nil
		for s := bufio.NewScanner(file); s.Scan(); {
			if text := strings.TrimSpace(s.Text()); text != "" {
				lines = append(lines, text)
			}
		}
		if len(lines) == 0 {
			return nil, exit.Usagef("sample: %s has no prompts", d.prompts)
		}
	}
	var out []string
	for _, l := range lines {
		for range d.count {
			out = append(out, l)
		}
	}
	return out, nil
}

// drawn is a picture that was written.
type drawn struct {
	Prompt string `json:"prompt"`
	File   string `json:"file"`
	Size   [3]int `json:"size"` // frames, height and width
}

// drawCommand draws pictures to files.
func drawCommand(c *cobra.Command, path, prompt string, d *drawing, how trained.Option) error {
	captions, err := d.captions(prompt)
	if err != nil {
		return err
	}
	if d.noise != "" {
		if d.Noise, err = diffusion.ReadNoise(d.noise, len(captions)); err != nil {
			return err
		}
	}
	m, err := trained.Open(path, "", how)
	if err != nil {
		return err
	}
	defer m.Close()
	var all []diffusion.Picture
	shown := cli.NewProgress(c.ErrOrStderr())
	d.Stepped = func(done, all int) {
		shown.Show(int64(done), int64(all), 0, func(time.Duration) string { return "steps of the sampler" })
	}
	d.Notes = c.ErrOrStderr()
	err = diffusion.Draw(m, c.Context(), captions, d.Drawing, func(p diffusion.Picture) error {
		all = append(all, p)
		return nil
	})
	if err != nil {
		return err
	}
	files, err := d.write(all)
	if err != nil {
		return err
	}
	return cli.Emit(c, files, func(w io.Writer) {
		for _, f := range files {
			fmt.Fprintf(w, "%s  %s\n", f.File, f.Prompt)
		}
	})
}

// write writes pictures into one file, or each into a file of its own where out is a folder.
func (d *drawing) write(all []diffusion.Picture) ([]drawn, error) {
	var files []drawn
	ext := filepath.Ext(d.out)
	if ext != ".png" && ext != ".gif" && ext != ".mp4" {
		if err := os.MkdirAll(d.out, 0o755); err != nil {
			return nil, err
		}
		for i, p := range all {
			end := ".png"
			if p.Size[0] > 1 {
				end = ".gif"
			}
			name := filepath.Join(d.out, fmt.Sprintf("%05d%s", i, end))
			if err := d.file(name, all[i:i+1]); err != nil {
				return nil, err
			}
			files = append(files, drawn{p.Caption, name, p.Size})
		}
		return files, nil
	}
	for _, p := range all {
		files = append(files, drawn{p.Caption, d.out, p.Size})
	}
	return files, d.file(d.out, all)
}

// file writes pictures of one size as a sheet, frame by frame.
func (d *drawing) file(name string, all []diffusion.Picture) error {
	size := all[0].Size
	var frames []*media.Image
	for t := range size[0] {
		var sheet []*media.Image
		for _, p := range all {
			sheet = append(sheet, media.FromPlanes(p.Pixels, size, t))
		}
		frames = append(frames, media.Sheet(sheet, d.columns, 2))
	}
	if filepath.Ext(name) != ".png" {
		return media.WriteVideo(name, frames, d.fps)
	}
	return os.WriteFile(name, media.Sheet(frames, len(frames), 2).PNG(), 0o644)
}
