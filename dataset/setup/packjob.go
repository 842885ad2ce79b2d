package setup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/jobs"
)

// PackJob is a job of offline packing.
type PackJob struct {
	Input    string
	Model    string // folder with tokenizer, chat template and processor
	Template string // file; "" means the model's own
	jobs.PackConfig
}

// Run packs the samples of the input, counted as training would see them.
func (j *PackJob) Run(ctx context.Context) (r jobs.PackReport, err error) {
	if err := j.open(); err != nil {
		return r, err
	}
	defer j.Source.Close()
	return jobs.PackShards(ctx, j.PackConfig)
}

// open opens the input and what counts its samples.
func (j *PackJob) open() (err error) {
	if j.Source, err = dataset.Open(j.Input, dataset.Options{}); err != nil {
		return err
	}
	if j.Encoder, err = VisionEncoder(j.Model, j.Template, j.SampleType); err != nil {
		_ = j.Source.Close() // it was only opened
	}
	return err
}

// Work is what hosts do for Run that are elsewhere; done closes what it has opened.
func (j *PackJob) Work() (work dataset.Work, done func(), err error) {
	mine := *j
	if err := mine.open(); err != nil {
		return nil, nil, err
	}
	return jobs.PackWork(mine.PackConfig), func() { _ = mine.Source.Close() }, nil // it is only read
}

// loongPack is LoongForge's configuration of offline packing. What is about its processes and files between
// steps has no meaning here and is taken as it is.
type loongPack struct {
	Data struct {
		InputFormat string `yaml:"input_format"`
		WDSDir      string `yaml:"wds_dir"`
		TextKey     string `yaml:"template_text_key"`
		PackedDir   string `yaml:"packed_wds_dir"`
		WorkDir     string `yaml:"work_dir"`
	} `yaml:"data"`
	Model struct {
		Type      string         `yaml:"model_type"`
		Loader    string         `yaml:"processor_loader"`
		HF        bool           `yaml:"use_hf_chat_template"`
		Template  string         `yaml:"chat_template_path"`
		Extra     map[string]any `yaml:"chat_template_kwargs"`
		Processor struct {
			Path      string `yaml:"pretrained_model_name_or_path"`
			MinPixels int    `yaml:"min_pixels"`
			MaxPixels int    `yaml:"max_pixels"`
			Trust     bool   `yaml:"trust_remote_code"`
			Fast      bool   `yaml:"use_fast"`
		} `yaml:"processor_kwargs"`
	} `yaml:"model"`
	Media  map[string]any `yaml:"media_preprocess"`
	Sample struct {
		Tokens int    `yaml:"max_token_len"`
		Type   string `yaml:"sample_type"`
	} `yaml:"sample"`
	Packing struct {
		Algorithm string `yaml:"algorithm"`
		Validate  bool   `yaml:"validate_pack_plan"`
	} `yaml:"packing"`
	Artifacts map[string]any `yaml:"artifacts"`
	Packed    struct {
		MaxSize  float64 `yaml:"maxsize"`
		MaxCount float64 `yaml:"maxcount"`
	} `yaml:"packed_wds"`
	Process map[string]any `yaml:"process"`
	Log     map[string]any `yaml:"log"`
}

// Load takes what a configuration says into the job, where no flag says otherwise.
func (j *PackJob) Load(file string, flagged func(string) bool) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var l loongPack
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&l); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(l.Media) > 0 || len(l.Model.Extra) > 0 {
		return fmt.Errorf("%s: media_preprocess and chat_template_kwargs would count other tokens than "+
			"training sees; remove them", file)
	}
	if err := samePixels(file, l.Model.Processor.Path, l.Model.Processor.MinPixels,
		l.Model.Processor.MaxPixels); err != nil {
		return err
	}
	set := func(flag string, into *string, v string) {
		if v != "" && !flagged(flag) {
			*into = v
		}
	}
	set("input", &j.Input, l.Data.WDSDir)
	set("output_dir", &j.OutputDir, l.Data.PackedDir)
	set("model", &j.Model, l.Model.Processor.Path)
	set("template", &j.Template, l.Model.Template)
	set("packed_type", &j.PackedType, l.Sample.Type)
	if !flagged("algorithm") {
		j.Algorithm = "hashbucket" // LoongForge's own default
		set("algorithm", &j.Algorithm, l.Packing.Algorithm)
	}
	if l.Sample.Tokens > 0 && !flagged("max-tokens") {
		j.Tokens = l.Sample.Tokens
	}
	if l.Packed.MaxCount > 0 && !flagged("maxcount") {
		j.MaxCount = int64(l.Packed.MaxCount)
	}
	if l.Packed.MaxSize > 0 && !flagged("maxsize") {
		j.MaxSize = int64(l.Packed.MaxSize)
	}
	if l.Data.InputFormat != "" && l.Data.InputFormat != "wds" {
		return fmt.Errorf("%s: data.input_format %q; packing reads wds", file, l.Data.InputFormat)
	}
	if info, err := os.Stat(j.Input); err == nil && info.IsDir() {
		if _, err := os.Stat(filepath.Join(j.Input, ".nv-meta")); err != nil {
			j.Input = filepath.Join(j.Input, "*.tar")
		}
	}
	return nil
}

// samePixels refuses bounds of pixels that are not the model's own, which training goes by.
func samePixels(file, model string, least, most int) error {
	b, err := os.ReadFile(filepath.Join(model, "preprocessor_config.json"))
	if err != nil || least == 0 && most == 0 {
		return nil // the model is looked at later
	}
	var own struct {
		Min  int `yaml:"min_pixels"`
		Max  int `yaml:"max_pixels"`
		Size struct {
			Min int `yaml:"shortest_edge"`
			Max int `yaml:"longest_edge"`
		} `yaml:"size"`
	}
	if err := yaml.Unmarshal(b, &own); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(model, "preprocessor_config.json"), err)
	}
	if own.Min == 0 && own.Max == 0 {
		own.Min, own.Max = own.Size.Min, own.Size.Max
	}
	if least != 0 && least != own.Min || most != 0 && most != own.Max {
		return fmt.Errorf("%s: min_pixels %d and max_pixels %d would count other tokens than training "+
			"sees, whose bounds are %d and %d; set them in %s", file, least, most, own.Min, own.Max,
			filepath.Join(model, "preprocessor_config.json"))
	}
	return nil
}
