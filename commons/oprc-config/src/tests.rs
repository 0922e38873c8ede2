//! A schema with all kinds, set from all sources.

use std::{collections::BTreeMap, io, time::Duration};

use crate::{Error, Kind, Resolved, Schema, Setting, Source};

const SCHEMA: Schema = Schema {
    program: "oprc-crm",
    about: "Class runtime manager",
    env_prefix: "OPRC_CRM_",
    root: Some("crm"),
    settings: &[
        Setting {
            path: "profile",
            env: &["OPRC_CRM_PROFILE"],
            kind: Kind::OneOf(&["dev", "edge"]),
            help: "Chooses the defaults",
            default: |_| Some("dev".into()),
        },
        Setting {
            path: "http.port",
            env: &["OPRC_CRM_HTTP_PORT", "HTTP_PORT"],
            kind: Kind::Integer { min: 1, max: 65535 },
            help: "The one port",
            default: |_| Some("8088".into()),
        },
        Setting {
            path: "features.odgm",
            env: &["OPRC_CRM_FEATURES_ODGM"],
            kind: Kind::Bool,
            help: "Whether ODGM is deployed",
            default: |profile| Some((profile == "edge").to_string()),
        },
        Setting {
            path: "deploy.timeout",
            env: &["OPRC_CRM_DEPLOY_TIMEOUT_SECS"],
            kind: Kind::Duration,
            default: |_| Some("5m".into()),
            ..Setting::EMPTY
        },
        Setting {
            path: "deploy.max_units",
            kind: Kind::Integer { min: -1, max: i64::MAX },
            default: |_| Some("5".into()),
            ..Setting::EMPTY
        },
        Setting { path: "namespaces", kind: Kind::List, ..Setting::EMPTY },
        Setting { path: "log.level", help: "Either | or", ..Setting::EMPTY },
    ],
    profile: "profile",
    aliases: &[("limits.units", "deploy.max_units")],
    rejected: &[("security.disableTls", "TLS cannot be turned off")],
};

/// Resolves arguments, variables and, unless empty, a file.
fn resolve(args: &[&str], env: &[(&str, &str)], file: &str) -> Result<Resolved, Error> {
    let mut args = [&["oprc-crm"], args].concat();
    if !file.is_empty() {
        args.extend(["--config", "crm.yaml"]);
    }
    let matches = SCHEMA.command().try_get_matches_from(args).unwrap();
    let env: BTreeMap<_, _> =
        env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    SCHEMA.resolve_with(&matches, &env, |_| Ok(file.to_owned()))
}

fn problems(result: Result<Resolved, Error>) -> Vec<String> {
    match result {
        Err(Error::Invalid(problems)) => problems,
        other => panic!("{other:?}"),
    }
}

#[test]
fn schema_is_valid() {
    assert_eq!(SCHEMA.errors(), Vec::<String>::new());
    SCHEMA.command().debug_assert();
}

#[test]
fn reports_errors_of_a_schema() {
    let settings = &[
        Setting { path: "a.b", kind: Kind::Bool, default: |_| Some("x".into()), ..Setting::EMPTY },
        Setting { path: "a_b", env: &["OPRC_CRM_CONFIG"], ..Setting::EMPTY },
        Setting { path: "aB", ..Setting::EMPTY },
    ];
    assert_eq!(
        Schema { settings, ..SCHEMA }.errors(),
        [
            "flag a-b is declared twice",
            "variable OPRC_CRM_CONFIG is declared twice",
            "file a_b is declared twice",
            "limits.units is an alias of deploy.max_units, which is not declared",
            "a.b: invalid value \"x\" from default: expected true or false",
            "aB is not in snake_case",
            "the profile setting profile is not declared",
        ]
    );
}

#[test]
fn flags_override_variables_override_file_overrides_defaults() {
    let file = "crm:\n  http:\n    port: 3\n";
    let env = [("OPRC_CRM_HTTP_PORT", "2"), ("HTTP_PORT", "9")];
    let of = |args: &[&str], env: &[(&str, &str)], file| {
        let resolved = resolve(args, env, file).unwrap();
        let source = resolved.source("http.port").unwrap().clone();
        (resolved.get::<u16>("http.port").unwrap(), source)
    };
    assert_eq!(of(&["--http-port=1"], &env, file), (1, Source::Flag("--http-port".into())));
    assert_eq!(of(&[], &env, file), (2, Source::Env("OPRC_CRM_HTTP_PORT".into())));
    assert_eq!(of(&[], &env[1..], file), (9, Source::Env("HTTP_PORT".into())));
    let from_file = Source::File { path: "crm.yaml".into(), key: "crm.http.port".into() };
    assert_eq!(of(&[], &[], file), (3, from_file.clone()));
    assert_eq!(of(&[], &[("HTTP_PORT", "")], file), (3, from_file), "an empty variable is none");
    assert_eq!(of(&[], &[], ""), (8088, Source::Default("dev".into())));
}

#[test]
fn profile_from_any_source_selects_defaults() {
    for (args, env, file) in [
        (&["--profile", "edge"][..], &[][..], ""),
        (&[], &[("OPRC_CRM_PROFILE", " edge ")], ""),
        (&[], &[], "profile: edge"),
    ] {
        let resolved = resolve(args, env, file).unwrap();
        assert_eq!(resolved.get::<&str>("profile").unwrap(), "edge");
        assert!(resolved.get::<bool>("features.odgm").unwrap());
        assert_eq!(resolved.source("features.odgm"), Some(&Source::Default("edge".into())));
    }
    assert!(!resolve(&[], &[], "").unwrap().get::<bool>("features.odgm").unwrap());
}

#[test]
fn file_accepts_camel_case_strings_and_sections_outside_the_root() {
    let resolved = resolve(
        &[],
        &[],
        "CRM:
  deploy: {timeout: 90, maxUnits: 7}
  features: {odgm: 'true'}
  http: {port: '81'}
  namespaces: [a, b]
log: {level: debug}
deploy:
",
    )
    .unwrap();
    assert_eq!(resolved.get::<Duration>("deploy.timeout").unwrap(), Duration::from_secs(90));
    assert_eq!(resolved.get::<u32>("deploy.max_units").unwrap(), 7);
    assert!(resolved.get::<bool>("features.odgm").unwrap());
    assert_eq!(resolved.get::<u16>("http.port").unwrap(), 81);
    assert_eq!(resolved.get::<Vec<String>>("namespaces").unwrap(), ["a", "b"]);
    assert_eq!(resolved.get::<&str>("log.level").unwrap(), "debug");
    let outside = Source::File { path: "crm.yaml".into(), key: "log.level".into() };
    assert_eq!(resolved.source("log.level"), Some(&outside));
    let list = resolve(&["--namespaces", "a, b"], &[], "").unwrap();
    assert_eq!(list.get::<Vec<String>>("namespaces").unwrap(), ["a", "b"]);
    for empty in ["# nothing", "crm:", "crm: {}", "crm: {http: {port: }}"] {
        resolve(&[], &[], empty).unwrap();
    }
}

#[test]
fn reports_unknown_and_rejected_keys_with_suggestions() {
    let file = "
crm:
  features: {odmg: true}
  http: {address: 0.0.0.0}
  featurs: {odgm: true}
  security: {disableTls: true, other: 1}
cmr: {}
log: 3
";
    let mut problems = problems(resolve(&[], &[], file));
    problems.sort();
    assert_eq!(
        problems,
        [
            "cmr: unknown key in crm.yaml; did you mean crm?",
            "crm.features.odmg: unknown key in crm.yaml; did you mean crm.features.odgm?",
            "crm.featurs: unknown key in crm.yaml; did you mean crm.features?",
            "crm.http.address: unknown key in crm.yaml",
            "crm.security.disableTls: not supported in crm.yaml: TLS cannot be turned off",
            "crm.security.other: unknown key in crm.yaml",
            "log: invalid value 3 in crm.yaml: expected a section with keys",
        ]
    );
    assert_eq!(
        self::problems(resolve(&[], &[], "crm: x")),
        ["crm: invalid value \"x\" in crm.yaml: expected a section with keys"]
    );
}

#[test]
fn rejects_a_setting_that_the_file_sets_twice() {
    assert_eq!(
        problems(resolve(&[], &[], "crm: {deploy: {maxUnits: 1}}\ndeploy: {max_units: 2}")),
        ["deploy.max_units: set twice in crm.yaml, by crm.deploy.maxUnits and deploy.max_units: \
          remove one"]
    );
}

#[test]
fn alias_in_the_file_sets_the_setting() {
    let resolved = resolve(&[], &[], "crm: {limits: {units: 4}}").unwrap();
    assert_eq!(resolved.get::<u32>("deploy.max_units").unwrap(), 4);
    let key = "crm.limits.units".to_owned();
    let source = Source::File { path: "crm.yaml".into(), key };
    assert_eq!(resolved.source("deploy.max_units"), Some(&source));
    assert_eq!(
        problems(resolve(&[], &[], "limits: {units: 1}\ndeploy: {maxUnits: 2}")),
        [
            "deploy.max_units: set twice in crm.yaml, by deploy.maxUnits and limits.units: remove one"
        ]
    );
}

#[test]
fn reports_all_problems_at_once() {
    let result = resolve(
        &["--http-port=0"],
        &[("OPRC_CRM_PROFILE", "cloud")],
        "crm: {features: {odgm: maybe}, deploy: {timeout: [1]}, x: 1}",
    );
    assert_eq!(
        result.unwrap_err().to_string(),
        "crm.x: unknown key in crm.yaml
profile: invalid value \"cloud\" from variable OPRC_CRM_PROFILE: expected one of dev, edge
http.port: invalid value \"0\" from flag --http-port: expected an integer from 1 to 65535
features.odgm: invalid value \"maybe\" from file crm.yaml (crm.features.odgm): \
expected true or false
deploy.timeout: invalid value \"[1]\" from file crm.yaml (crm.deploy.timeout): \
expected a duration such as 500ms, 30s, 5m, 1h, or a number of seconds"
    );
}

#[test]
fn integer_flags_may_be_negative() {
    let resolved = resolve(&["--deploy-max-units", "-1"], &[], "").unwrap();
    assert_eq!(resolved.get::<i32>("deploy.max_units").unwrap(), -1);
    assert_eq!(
        problems(resolve(&["--deploy-max-units=-2"], &[], "")),
        ["deploy.max_units: invalid value \"-2\" from flag --deploy-max-units: \
          expected an integer, at least -1"]
    );
}

#[test]
fn warns_about_unknown_variables_with_the_prefix() {
    let env = [("OPRC_CRM_SERVICE_HOST", "10.0.0.1"), ("OPRC_CRM_HTP_PORT", "1"), ("HOME", "/")];
    assert_eq!(
        resolve(&[], &env, "").unwrap().warnings(),
        [
            "ignored unknown variable OPRC_CRM_HTP_PORT; \
             did you mean OPRC_CRM_HTTP_PORT?",
            "ignored unknown variable OPRC_CRM_SERVICE_HOST",
        ]
    );
}

#[test]
fn bool_flags_need_no_value_and_flags_work_after_subcommands() {
    let of = |args: &[&str]| resolve(args, &[], "").unwrap().get::<bool>("features.odgm").unwrap();
    assert!(of(&["--features-odgm"]));
    assert!(!of(&["--profile=edge", "--features-odgm=false"]));

    let matches = SCHEMA.command().get_matches_from(["oprc-crm", "config", "--http-port", "7"]);
    let resolved = SCHEMA.resolve(&matches, &BTreeMap::new()).unwrap();
    assert_eq!(resolved.get::<u16>("http.port").unwrap(), 7);
}

#[test]
fn variable_sets_the_file_which_must_be_readable_yaml() {
    let matches = SCHEMA.command().get_matches_from(["oprc-crm"]);
    let env = BTreeMap::from([("OPRC_CRM_CONFIG".to_owned(), "a.yaml".to_owned())]);
    let with = |text: io::Result<&str>| {
        SCHEMA
            .resolve_with(&matches, &env, |_| text.map(str::to_owned))
            .map_err(|error| error.to_string())
    };
    assert_eq!(with(Ok("http: {port: 5}")).unwrap().get::<u16>("http.port").unwrap(), 5);
    assert_eq!(
        with(Err(io::Error::other("gone"))).unwrap_err(),
        "cannot read the config file a.yaml: gone"
    );
    for text in ["a: [", "- a", "http: {port: 1}\nhttp: {port: 2}", "a: 1\n---\nb: 2"] {
        let error = with(Ok(text)).unwrap_err();
        assert!(error.starts_with("the config file a.yaml is not a YAML mapping: "), "{error}");
    }
}

#[test]
fn get_reports_unset_settings_and_wrong_types() {
    let resolved = resolve(&[], &[], "").unwrap();
    assert_eq!(resolved.get::<Option<&str>>("log.level").unwrap(), None);
    assert_eq!(
        resolved.get::<&str>("log.level").unwrap_err().to_string(),
        "the setting log.level has no value: set --log-level or log.level in the config file"
    );
    assert_eq!(
        resolved.get::<bool>("http.port").unwrap_err().to_string(),
        "the setting http.port cannot be read as bool: the schema has an integer from 1 to 65535"
    );
    assert!(matches!(resolved.get::<bool>("nothing"), Err(Error::Schema { .. })));
    assert_eq!(resolved.source("nothing"), None);
}

#[test]
fn describes_values_in_columns() {
    let text = resolve(&["--http-port=1"], &[], "crm: {namespaces: [a]}").unwrap().describe();
    assert_eq!(
        text,
        "profile           dev      default of dev
http.port         1        flag --http-port
features.odgm     false    default of dev
deploy.timeout    5m       default of dev
deploy.max_units  5        default of dev
namespaces        [\"a\"]    file crm.yaml (crm.namespaces)
log.level         (unset)  default of dev
"
    );
}

#[test]
fn help_and_reference_list_all_settings() {
    let help = SCHEMA.command().term_width(0).render_help().to_string();
    for expected in [
        "--config <PATH>",
        "[env: OPRC_CRM_CONFIG]",
        "The one port [env: OPRC_CRM_HTTP_PORT, HTTP_PORT] [default: 8088]",
        "[default: dev: false, edge: true]",
        "[one of: dev, edge]",
        "--features-odgm[=<BOOL>]",
    ] {
        assert!(help.contains(expected), "{expected} is not in {help}");
    }
    let markdown = SCHEMA.markdown();
    for expected in [
        "|  | `--config` | `OPRC_CRM_CONFIG` |  | a path | Path of the YAML config file |\n",
        "| `http.port` | `--http-port` | `OPRC_CRM_HTTP_PORT`, `HTTP_PORT` | `8088` | \
         an integer from 1 to 65535 | The one port |\n",
        "`dev: false, edge: true`",
        "| Either \\| or |\n",
    ] {
        assert!(markdown.contains(expected), "{expected} is not in {markdown}");
    }
}
