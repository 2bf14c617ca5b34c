package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// createOutput is the JSON of "mirrors create".
type createOutput struct {
	Mirror       string       `json:"mirror"`
	ValidateOnly bool         `json:"validateOnly"`
	Error        *answerError `json:"error,omitempty"`
}

type createFlags struct {
	mirror       string
	settings     []string
	file         string
	validateOnly bool
}

func newMirrorsCreateCommand(f *gatewayFlags) *cobra.Command {
	var c createFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a mirror of another Kafka cluster",
		Long: `Creates a mirror; 'add-topics' then gives it topics. The gateway contacts the source before it answers.

The configuration is how the gateway reaches the source, in the names of Kafka's client properties (bootstrap.servers is
required; security.protocol, sasl.*, ssl.*), and the mirror's own settings (mirror.topics.include and so on). It comes from
--mirror-config-file, a .properties file, and --mirror-config, which counts before the file. Passwords belong into the file:
command lines can be seen by other users of the machine. Files that the configuration names are read by the gateway.

JSON: {"mirror", "validateOnly", "error"?: {"code", "name", "message"}}`,
		Example: `  mirrorgate mirrors create --bootstrap-server gateway:9092 --mirror east --mirror-config bootstrap.servers=old-kafka:9092
  mirrorgate mirrors create --bootstrap-server gateway:9092 --mirror east --mirror-config-file east.properties --validate-only
  mirrorgate mirrors create --bootstrap-server gateway:9092 --mirror east --mirror-config-file east.properties \
    --mirror-config 'mirror.topics.include=orders,payments\..*'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd, f) },
	}
	cmd.Flags().StringVar(&c.mirror, "mirror", "", "name of the new mirror (required)")
	cmd.Flags().StringArrayVar(&c.settings, "mirror-config", nil, "KEY=VALUE, a setting of the mirror; may be repeated")
	cmd.Flags().StringVar(&c.file, "mirror-config-file", "", ".properties file with settings of the mirror")
	cmd.Flags().BoolVar(&c.validateOnly, "validate-only", false, "check everything, create nothing")
	return cmd
}

func (c *createFlags) run(cmd *cobra.Command, f *gatewayFlags) error {
	if c.mirror == "" {
		return errNoMirror
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	g, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer g.close()
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName, req.ValidateOnly = &c.mirror, c.validateOnly
	for _, key := range slices.Sorted(maps.Keys(config)) {
		value := config[key]
		req.Config = append(req.Config, mirrormsg.CreateMirrorRequestConfig{Name: key, Value: &value})
	}
	resp, err := ask[*mirrormsg.CreateMirrorResponse](cmd.Context(), g, req)
	if err != nil {
		return fmt.Errorf("creating mirror %s: %w", c.mirror, err)
	}
	return c.print(cmd, f, newAnswerError(resp.ErrorCode, resp.ErrorMessage))
}

func (c *createFlags) print(cmd *cobra.Command, f *gatewayFlags, refused *answerError) error {
	var err error
	if f.json {
		err = printJSON(cmd.OutOrStdout(), createOutput{c.mirror, c.validateOnly, refused})
	}
	switch {
	case refused != nil:
		return errors.Join(fmt.Errorf("creating mirror %s: %w", c.mirror, refused), err)
	case f.json:
	case c.validateOnly:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Mirror %s could be created.\n", c.mirror)
	default:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Created mirror %s. 'mirrorgate mirrors add-topics' adds topics to it.\n", c.mirror)
	}
	return err
}

var errNoMirror = usagef("--mirror is missing; give the name of the mirror")

// config returns the settings of the file and of the flags, which count before it.
func (c *createFlags) config() (map[string]string, error) {
	config := map[string]string{}
	if c.file != "" {
		var err error
		if config, err = broker.ReadPropertiesFile(c.file); err != nil {
			return nil, fmt.Errorf("--mirror-config-file: %w", err)
		}
	}
	given := map[string]bool{}
	for _, setting := range c.settings {
		key, value, ok := strings.Cut(setting, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			// The text is not shown: it may be a password.
			return nil, usagef("--mirror-config needs KEY=VALUE, for example bootstrap.servers=old-kafka:9092")
		}
		if given[key] {
			return nil, usagef("--mirror-config gives %s twice", key)
		}
		given[key], config[key] = true, value
	}
	if strings.TrimSpace(config["bootstrap.servers"]) == "" {
		return nil, usagef("the mirror has no source; give --mirror-config bootstrap.servers=HOST:PORT, or a --mirror-config-file with it")
	}
	return config, nil
}
