package data

import (
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
)

// sftFlags are the flags of commands that look at data, for conversations with other names than the usual ones.
type sftFlags struct {
	file, name string
	media      bool
}

func (s *sftFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&s.file, "dataset-config", "",
		"file with names of keys and roles, as LoongForge's sft_dataset_config.yaml")
	c.Flags().StringVar(&s.name, "dataset", "", "entry of --dataset-config, or one of those that LoongForge comes with")
	c.Flags().BoolVar(&s.media, "media", false,
		"conversations in JSON or Parquet come with the images and videos that they name")
}

// options applies the flags to a path.
func (s *sftFlags) options(o dataset.Options, path string) (dataset.Options, error) {
	if s.file == "" && s.name == "" {
		return setup.SFTOptions(o, path, nil, s.media), nil
	}
	name := s.name
	if name == "" {
		name = "default"
	}
	f, err := configs.FindSFT(s.file, name)
	if err != nil {
		return o, err
	}
	return setup.SFTOptions(o, path, &f, s.media), nil
}
