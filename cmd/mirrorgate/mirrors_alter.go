package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
)

// resourceMirror is the resource type of a mirror's configuration.
const resourceMirror kmsg.ConfigResourceType = 64

type alterFlags struct {
	mirror       string
	set          []string
	file         string
	deleted      []string
	appended     []string
	subtracted   []string
	validateOnly bool
}

func newMirrorsAlterCommand(f *gatewayFlags) *cobra.Command {
	var a alterFlags
	cmd := &cobra.Command{
		Use:   "alter",
		Short: "Change the configuration of a mirror",
		Long: `Changes settings of a mirror; those that are not named stay as they are. The change takes effect at once. If it concerns the
connection to the source, the gateway contacts the source before it answers, and the mirror connects anew: it goes on where it was.
A mirror stays with its source: new addresses must be those of the same cluster.

--append and --subtract change items of a list, such as mirror.topics.include. Passwords belong into the file: command lines
can be seen by other users of the machine. 'mirrors describe --config' shows the settings.

JSON: {"mirror", "validateOnly"?, "error"?: {"code", "name", "message"}}`,
		Example: `  mirrorgate mirrors alter --bootstrap-server gateway:9092 --mirror east --mirror-config mirror.metadata.refresh.interval.ms=5000
  mirrorgate mirrors alter --bootstrap-server gateway:9092 --mirror east --append 'mirror.topics.include=shop\..*'
  mirrorgate mirrors alter --bootstrap-server gateway:9092 --mirror east --mirror-config-file new-password.properties
  mirrorgate mirrors alter --bootstrap-server gateway:9092 --mirror east --delete-config mirror.groups.exclude`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&a.mirror, "mirror", "", "name of the mirror (required)")
	flags.StringArrayVar(&a.set, "mirror-config", nil, "KEY=VALUE, a setting of the mirror; may be repeated")
	flags.StringVar(&a.file, "mirror-config-file", "", ".properties file with settings to change")
	flags.StringArrayVar(&a.deleted, "delete-config", nil, "KEY, a setting that goes back to its default; may be repeated")
	flags.StringArrayVar(&a.appended, "append", nil, "KEY=ITEM, an item to append to a list; may be repeated")
	flags.StringArrayVar(&a.subtracted, "subtract", nil, "KEY=ITEM, an item to take out of a list; may be repeated")
	flags.BoolVar(&a.validateOnly, "validate-only", false, "check everything, change nothing")
	return cmd
}

func (a *alterFlags) run(cmd *cobra.Command, f *gatewayFlags) error {
	if a.mirror == "" {
		return errNoMirror
	}
	changes, err := a.changes()
	if err != nil {
		return err
	}
	g, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer g.close()
	refused, err := alterMirror(cmd.Context(), g, a.mirror, changes, a.validateOnly)
	if err != nil {
		return fmt.Errorf("altering mirror %s: %w", a.mirror, err)
	}
	done := "Altered mirror " + a.mirror + "."
	if a.validateOnly {
		done = "Mirror " + a.mirror + " could be altered."
	}
	return mirrorOutput{a.mirror, a.validateOnly, refused}.print(cmd, f, "altering mirror "+a.mirror, done)
}

// changes are what the flags ask for, at most one for each key.
func (a *alterFlags) changes() ([]kmsg.IncrementalAlterConfigsRequestResourceConfig, error) {
	changes := make(map[string]kmsg.IncrementalAlterConfigsRequestResourceConfig)
	if a.file != "" {
		file, err := broker.ReadPropertiesFile(a.file)
		if err != nil {
			return nil, fmt.Errorf("--mirror-config-file: %w", err)
		}
		for key, value := range file {
			changes[key] = alteration(key, kmsg.IncrementalAlterConfigOpSet, &value)
		}
	}
	given := make(map[string]bool)
	add := func(flag, setting string, op kmsg.IncrementalAlterConfigOp) error {
		key, value, ok := strings.Cut(setting, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return usagef("%s needs KEY=VALUE", flag) // the text is not shown: it may be a password
		}
		if before, twice := changes[key]; twice && given[key] {
			if before.Op != op || op == kmsg.IncrementalAlterConfigOpSet {
				return usagef("%s is changed twice", key)
			}
			value = *before.Value + "," + value
		}
		given[key], changes[key] = true, alteration(key, op, &value)
		return nil
	}
	var errs []error
	for _, setting := range a.set {
		errs = append(errs, add("--mirror-config", setting, kmsg.IncrementalAlterConfigOpSet))
	}
	for _, setting := range a.appended {
		errs = append(errs, add("--append", setting, kmsg.IncrementalAlterConfigOpAppend))
	}
	for _, setting := range a.subtracted {
		errs = append(errs, add("--subtract", setting, kmsg.IncrementalAlterConfigOpSubtract))
	}
	for _, key := range a.deleted {
		if given[key] {
			errs = append(errs, usagef("%s is changed twice", key))
		}
		given[key], changes[key] = true, alteration(key, kmsg.IncrementalAlterConfigOpDelete, nil)
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	if len(changes) == 0 {
		return nil, usagef("nothing to change; give --mirror-config, --mirror-config-file, --delete-config, --append or --subtract")
	}
	var list []kmsg.IncrementalAlterConfigsRequestResourceConfig
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		list = append(list, changes[key])
	}
	return list, nil
}

func alteration(key string, op kmsg.IncrementalAlterConfigOp, value *string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Op, c.Value = key, op, value
	return c
}

// alterMirror asks the gateway to change the configuration of a mirror.
func alterMirror(ctx context.Context, g *gatewayClient, name string, changes []kmsg.IncrementalAlterConfigsRequestResourceConfig, validateOnly bool) (*answerError, error) {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.ValidateOnly = validateOnly
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.Configs = resourceMirror, name, changes
	req.Resources = append(req.Resources, resource)
	resp, err := askKafka[*kmsg.IncrementalAlterConfigsResponse](ctx, g, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Resources) != 1 {
		return nil, fmt.Errorf("the gateway answered for %d resources", len(resp.Resources))
	}
	return newAnswerError(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage), nil
}

// describedSetting is one setting of a mirror in the JSON of "mirrors describe --config".
type describedSetting struct {
	Name string `json:"name"`
	// Value is null for a secret, and where there is none.
	Value   *string `json:"value"`
	Default bool    `json:"default"`
	Secret  bool    `json:"secret,omitempty"`
}

// describeConfig asks the gateway for the configuration of a mirror.
func describeConfig(ctx context.Context, g *gatewayClient, name string) ([]describedSetting, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = resourceMirror, name
	req.Resources = append(req.Resources, resource)
	resp, err := askKafka[*kmsg.DescribeConfigsResponse](ctx, g, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Resources) != 1 {
		return nil, errors.New("the gateway did not answer for the mirror")
	}
	if err := answered(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage); err != nil {
		return nil, err
	}
	settings := []describedSetting{}
	for _, c := range resp.Resources[0].Configs {
		settings = append(settings, describedSetting{c.Name, c.Value, c.Source == kmsg.ConfigSourceDefaultConfig, c.IsSensitive})
	}
	return settings, nil
}

// show is the value for people.
func (s describedSetting) show() string {
	switch {
	case s.Value != nil:
		return *s.Value
	case s.Secret && !s.Default:
		return "[hidden]"
	}
	return "-"
}
