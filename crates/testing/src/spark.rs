//! A cluster of Spark on this machine, for tests.

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::wait::{until, until_some, within};

/// The variable with the directory into which PySpark was installed.
const VARIABLE: &str = "USERTRACE_PYSPARK";

/// Time limit of a program with its queries. Only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(900);

/// Makes the view, runs the queries, and writes the rows of each to a file.
const PROGRAM: &str = "
import json, sys
from pyspark.sql import SparkSession
with open(sys.argv[1]) as file:
    asked = json.load(file)
builder = SparkSession.builder.master(asked['master'])
for name, value in asked['settings'].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
exec(asked['view'])
answers = [[list(row) for row in spark.sql(query).collect()] for query in asked['queries']]
spark.stop()
with open(sys.argv[2], 'w') as file:
    json.dump(answers, file, default=str)
";

/// A standalone master and its workers, each a process. Everything listens on the loopback device.
pub struct SparkCluster {
    directory: tempfile::TempDir,
    /// Where PySpark is installed.
    packages: PathBuf,
    daemons: Vec<ProcessGroup>,
    workers: usize,
    /// The address of the master.
    master: String,
}

impl SparkCluster {
    /// Starts a master and so many workers of one core each, and waits until the master has all.
    ///
    /// # Errors
    /// The reason why there is no Spark: `USERTRACE_PYSPARK` is not set.
    ///
    /// # Panics
    /// If the directory has no PySpark, or a daemon ends.
    pub fn start(workers: usize) -> Result<Self, String> {
        let packages = std::env::var_os(VARIABLE).map(PathBuf::from);
        let packages = packages.ok_or_else(|| format!("{VARIABLE} is not set"))?;
        let jars = packages.join("pyspark/jars");
        assert!(jars.is_dir(), "{VARIABLE}: no directory {}", jars.display());
        let mut cluster = Self {
            directory: tempfile::tempdir().unwrap(),
            packages: packages.canonicalize().unwrap(),
            daemons: Vec::new(),
            workers,
            master: String::new(),
        };
        cluster.daemon("master.Master", "master", &["--port", "0"]);
        cluster.master = until_some("the master listens", || {
            let log = cluster.log("master");
            let (_, address) = log.split_once("Starting Spark master at ")?;
            Some(address.split_once('\n')?.0.to_owned())
        });
        let master = cluster.master.clone();
        for n in 0..workers {
            let name = format!("worker{n}");
            let work = cluster.path().join(&name);
            let arguments = ["--cores", "1", "--memory", "1g", "--work-dir"];
            let arguments = [&arguments[..], &[work.to_str().unwrap(), &master]].concat();
            cluster.daemon("worker.Worker", &name, &arguments);
        }
        until("the workers are registered", || {
            cluster.check();
            let log = cluster.log("master");
            log.matches("Registering worker").count() == workers
        });
        Ok(cluster)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn log(&self, name: &str) -> String {
        let path = self.path().join(name).with_extension("log");
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The logs of the program and of the workers, which say why executors did not start.
    fn logs(&self) -> String {
        let workers = (0..self.workers).map(|n| format!("worker{n}"));
        let logs = workers.chain(["program".to_owned()]);
        let logs = logs.map(|name| format!("\n{name}:\n{}", self.log(&name)));
        logs.collect()
    }

    /// Starts a daemon with a log of its own. Without Spark's script, which sets the version of
    /// Scala, workers could not start executors: "Cannot find any build directories".
    fn daemon(&mut self, class: &str, name: &str, arguments: &[&str]) {
        let mut command = Command::new(self.packages.join("pyspark/bin/spark-class"));
        command.arg(format!("org.apache.spark.deploy.{class}"));
        command.args(["--host", "127.0.0.1", "--webui-port", "0"]);
        command.args(arguments).env("SPARK_DAEMON_MEMORY", "256m");
        let daemon = self.spawn(&mut command, name);
        self.daemons.push(daemon);
    }

    /// Starts a process group with the variables of Spark, whose files are below our directory.
    fn spawn(&self, command: &mut Command, name: &str) -> ProcessGroup {
        let path = self.path();
        let log = File::create(path.join(name).with_extension("log")).unwrap();
        // Killed virtual machines leave their counters and libraries in these directories.
        let java = format!(
            "-XX:-UsePerfData -Djava.io.tmpdir='{}' -Dderby.system.home='{}'",
            path.display(),
            path.display()
        );
        command
            .env("SPARK_HOME", self.packages.join("pyspark"))
            .env("SPARK_CONF_DIR", path.join("conf"))
            .env("SPARK_LOCAL_IP", "127.0.0.1")
            .env("SPARK_LOCAL_DIRS", path)
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYSPARK_PYTHON", "/usr/bin/python3")
            .env("JAVA_TOOL_OPTIONS", java)
            .env("TMPDIR", path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let program = command.get_program().to_owned();
        let group = ProcessGroup::spawn(command);
        group.unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
    }

    /// Panics with the log of a daemon that has ended.
    fn check(&self) {
        let Some(at) = self.daemons.iter().position(|of| of.ended().is_some()) else {
            return;
        };
        let name = match at {
            0 => "master".to_owned(),
            _ => format!("worker{}", at - 1),
        };
        panic!("the {name} of Spark has ended:\n{}", self.log(&name));
    }

    /// Runs a program in a directory: a line of Python with the session `spark`, for example one
    /// that makes a view, and then queries. Returns the rows of each query. All workers take part.
    ///
    /// # Panics
    /// If the program fails or takes too long, or a worker's executor has finished no task.
    pub fn run(&self, directory: &Path, view: &str, queries: &[&str]) -> Vec<Vec<Vec<Value>>> {
        let [asked, answers] = ["asked", "answers"].map(|name| self.path().join(name));
        let settings = json!({
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "900m",
            // The first task waits for all executors, so that each has some of the tasks.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        });
        let text = json!({
            "master": self.master, "settings": settings, "view": view, "queries": queries,
        });
        fs::write(&asked, text.to_string()).unwrap();
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", PROGRAM]).args([&asked, &answers]);
        let program = self.spawn(command.current_dir(directory), "program");
        let status = within(LIMIT, || {
            self.check();
            program.ended()
        });
        drop(program);
        assert_eq!(status, Some(0), "none is after {LIMIT:?}{}", self.logs());
        for n in 0..self.workers {
            let name = format!("worker{n}");
            assert!(self.has_finished_tasks(&name), "{name} has no tasks");
        }
        serde_json::from_slice(&fs::read(answers).unwrap()).unwrap()
    }

    /// Whether this worker's executors have finished a task of each application. An executor is a
    /// process, whose log is in `APPLICATION/EXECUTOR/stderr`.
    fn has_finished_tasks(&self, worker: &str) -> bool {
        let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let mut applications = entries(self.path().join(worker)).peekable();
        applications.peek().is_some()
            && applications.all(|application| {
                entries(application.path()).any(|executor| {
                    let log = fs::read_to_string(executor.path().join("stderr"));
                    log.is_ok_and(|log| log.contains("Executor: Finished task "))
                })
            })
    }

    /// Ends all processes, and waits until the system has none of them.
    ///
    /// # Panics
    /// If some are left.
    pub fn stop(self) {
        let Self {
            directory, daemons, ..
        } = self;
        drop(daemons);
        let path = directory.path().to_str().unwrap();
        until("all processes of Spark have ended", || !is_used(path));
    }
}

/// Whether a process has a variable with this text. One that has ended has no variables.
fn is_used(text: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut variables = processes.map(|process| fs::read(process.path().join("environ")));
    variables.any(|variables| {
        let variables = variables.unwrap_or_default();
        String::from_utf8_lossy(&variables).contains(text)
    })
}

/// A process and its children, which end with it.
struct ProcessGroup(Child);

impl ProcessGroup {
    fn spawn(command: &mut Command) -> std::io::Result<Self> {
        // SAFETY: between fork and exec, the child makes one system call, without pointers.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        Ok(Self(command.process_group(0).spawn()?))
    }

    /// The exit status of the process, or the signal that ended it. None: it runs. Its number
    /// stays its own until this is dropped.
    fn ended(&self) -> Option<i32> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: the kernel writes to `info` alone, of which zeros are a valid value.
        let (waited, info) = unsafe {
            let waited = libc::waitid(libc::P_PID, self.0.id(), info.as_mut_ptr(), options);
            (waited, info.assume_init())
        };
        assert_eq!(waited, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: `waitid` fills in both for a child that has ended, and otherwise leaves zeros.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        (pid != 0).then_some(status)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // SAFETY: the signal has no pointers. Only the line below waits for the child, so until
        // then no other group can get its number.
        unsafe { libc::kill(-self.0.id().cast_signed(), libc::SIGKILL) };
        self.0.wait().unwrap();
    }
}
