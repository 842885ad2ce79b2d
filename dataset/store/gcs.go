package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"
)

// Google's store is asked by its XML interface, which is S3's: gs://BUCKET/KEY. Source: "XML API
// overview", Google Cloud Storage.
func init() {
	remotes["gs"] = func(name string) (File, error) {
		c, err := shared()
		if err != nil {
			return nil, err
		}
		conf, err := gcsFromEnv()
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", Redact(name), err)
		}
		return c.openS3(name, conf)
	}
	globs["gs"] = func(c *client, pattern string) ([]Listed, error) {
		conf, err := gcsFromEnv()
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", Redact(pattern), err)
		}
		return c.globS3(pattern, conf)
	}
}

const gcsScope = "https://www.googleapis.com/auth/devstorage.read_only"

// gcsFromEnv reads who asks: a token, a service account's file, or keys for interoperability; public
// objects need none. STORAGE_EMULATOR_HOST names another store.
func gcsFromEnv() (c s3Config, err error) {
	c = s3Config{endpoint: "https://storage.googleapis.com", variable: "STORAGE_EMULATOR_HOST", region: "auto",
		now: time.Now, key: os.Getenv("GS_ACCESS_KEY_ID"), secret: os.Getenv("GS_SECRET_ACCESS_KEY")}
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); host != "" {
		if c.endpoint = host; Scheme(host) == "" {
			c.endpoint = "http://" + host
		}
	}
	token, file := os.Getenv("GOOGLE_OAUTH_ACCESS_TOKEN"), os.Getenv("GOOGLE_APPLICATION_CREDENTIALS")
	switch {
	case token != "":
		c.key, c.bearer = "", func(context.Context) (string, error) { return token, nil }
	case file != "" && c.key == "":
		source, err := accounts.of(file)
		if err != nil {
			return c, err
		}
		c.bearer = func(context.Context) (string, error) {
			t, err := source.Token()
			if err != nil {
				return "", fmt.Errorf("the account of %s gets no token: %w", file, err)
			}
			return t.AccessToken, nil
		}
	}
	return c, nil
}

// serviceAccounts are those whose tokens are in use: one is asked for anew when it ends.
type serviceAccounts struct {
	sync.Mutex
	open map[string]oauth2.TokenSource
}

var accounts = serviceAccounts{open: map[string]oauth2.TokenSource{}}

// of reads the file of a service account.
func (a *serviceAccounts) of(file string) (oauth2.TokenSource, error) {
	a.Lock()
	defer a.Unlock()
	if s := a.open[file]; s != nil {
		return s, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("GOOGLE_APPLICATION_CREDENTIALS: %w", err)
	}
	var key struct {
		Type  string `json:"type"`
		Email string `json:"client_email"`
		ID    string `json:"private_key_id"`
		Key   string `json:"private_key"`
		URL   string `json:"token_uri"`
	}
	if err = json.Unmarshal(b, &key); err == nil && (key.Type != "service_account" || key.Key == "" || key.URL == "") {
		err = errors.New("it is no key of a service account; make one, or give GOOGLE_OAUTH_ACCESS_TOKEN")
	}
	if err != nil {
		return nil, fmt.Errorf("GOOGLE_APPLICATION_CREDENTIALS: %s: %w", file, err)
	}
	conf := jwt.Config{Email: key.Email, PrivateKey: []byte(key.Key), PrivateKeyID: key.ID, TokenURL: key.URL,
		Scopes: []string{gcsScope}}
	a.open[file] = oauth2.ReuseTokenSource(nil, conf.TokenSource(context.Background()))
	return a.open[file], nil
}
