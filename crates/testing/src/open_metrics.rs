//! A strict parser of OpenMetrics text, written from the specification alone.

use std::collections::{BTreeMap, HashSet};

/// A family of metrics.
#[derive(Clone, Debug)]
pub struct Family {
    pub kind: String,
    pub samples: Vec<Sample>,
}

/// A sample: its whole name, labels and value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// Parses a text.
///
/// # Panics
/// If it is not valid.
pub fn parse(text: &str) -> BTreeMap<String, Family> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut seen = HashSet::new();
    for line in body.split_terminator('\n') {
        assert!(!line.is_empty(), "no empty lines");
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name) = (words.next().unwrap(), words.next().unwrap());
            let rest = words.next().unwrap();
            match what {
                "TYPE" => {
                    current = name.to_owned();
                    let family = Family {
                        kind: rest.to_owned(),
                        samples: Vec::new(),
                    };
                    let before = families.insert(name.to_owned(), family);
                    assert!(before.is_none(), "{name} is declared twice");
                }
                "HELP" => {
                    assert_eq!(name, current, "its help follows its type");
                    assert!(families[name].samples.is_empty(), "{line}");
                }
                _ => panic!("{line}"),
            }
            continue;
        }
        let sample = sample(line);
        let family = families.get_mut(&current).expect("a type comes first");
        let suffix = sample.name.strip_prefix(&current);
        let suffixes: &[&str] = match &*family.kind {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_count", "_sum"],
            kind => panic!("type {kind}"),
        };
        assert!(suffix.is_some_and(|end| suffixes.contains(&end)), "{line}");
        let place = (sample.name.clone(), sample.labels.clone());
        assert!(seen.insert(place), "{line} is there twice");
        if family.kind == "counter" {
            assert!(sample.value >= 0.0, "{line}");
        }
        family.samples.push(sample);
    }
    for family in families.values() {
        if family.kind == "histogram" {
            histograms(family);
        }
    }
    families
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, mut rest) = line.split_at(end);
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    assert!(is_name(name), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, behind) = rest.split_once("=\"").expect("a label");
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut chars = behind.char_indices();
            let end = loop {
                match chars.next().expect("the end of a label") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next().unwrap().1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} in {line}"),
                    }),
                    (_, c) => value.push(c),
                }
            };
            let before = labels.insert(label.to_owned(), value);
            assert!(before.is_none(), "{line}");
            rest = &behind[end + 1..];
            if let Some(more) = rest.strip_prefix(',') {
                assert!(!more.starts_with('}'), "{line}");
                rest = more;
            } else {
                assert!(rest.starts_with('}'), "{line}");
            }
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ').expect("a space");
    assert!(!value.contains(' '), "{line}");
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().unwrap(),
    }
}

/// Checks the histograms of a family: their samples are together, buckets are sorted and do not
/// shrink, the last one has everything, and `_sum` and `_count` go together.
fn histograms(family: &Family) {
    let key = |sample: &Sample| {
        let mut labels = sample.labels.clone();
        labels.remove("le");
        labels
    };
    let groups: Vec<&[Sample]> = family.samples.chunk_by(|a, b| key(a) == key(b)).collect();
    let keys: HashSet<_> = groups.iter().map(|group| key(&group[0])).collect();
    assert_eq!(keys.len(), groups.len(), "samples of a histogram are apart");
    for group in groups {
        let of = |end: &str| {
            group
                .iter()
                .filter(|sample| sample.name.ends_with(end))
                .collect::<Vec<_>>()
        };
        let buckets: Vec<_> = of("_bucket")
            .into_iter()
            .map(|sample| {
                let le = match &*sample.labels["le"] {
                    "+Inf" => f64::INFINITY,
                    le => {
                        assert!(le.contains('.'), "limits are floating-point numbers: {le}");
                        le.parse().unwrap()
                    }
                };
                (le, sample.value)
            })
            .collect();
        assert!(
            buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{buckets:?}"
        );
        assert_eq!(buckets.last().unwrap().0, f64::INFINITY);
        let (counts, sums) = (of("_count"), of("_sum"));
        assert_eq!(counts.len(), sums.len());
        for count in counts {
            assert_eq!(count.value, buckets.last().unwrap().1);
        }
        assert!(sums.iter().all(|sum| sum.value >= 0.0));
    }
}
