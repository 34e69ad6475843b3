--- The processes of a run: a supervisor that the user started, the master task below it, the other tasks below the master.
--
-- Every task is a fresh Lua VM, so that it shares nothing with the others but the counters, as in MoonGen. The
-- supervisor alone takes signals, because a Lua VM cannot run code in a signal handler.
local ffi = require "ffi"
local kernel = require "softmoon.kernel"
local serialize = require "softmoon.serialize"
local shared = require "softmoon.shared"

local C, check = ffi.C, kernel.check
local process = {}

local PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
local SIG_BLOCK, WNOHANG = 0, 1

-- The text that a file in memory holds.
local function readWhole(fd)
	local parts, buffer = {}, ffi.new("uint8_t[65536]")
	local offset = 0
	while true do
		local n = tonumber(C.pread(fd, buffer, 65536, offset))
		if n <= 0 then break end
		parts[#parts + 1] = ffi.string(buffer, n)
		offset = offset + n
	end
	return table.concat(parts)
end

local function newFile(name)
	return check(C.memfd_create(name, 0), "cannot start a task")
end

local function writeWhole(fd, text)
	if tonumber(check(C.write(fd, text, #text), "cannot hand data to a task")) < #text then
		error("softmoon: cannot hand data to a task: no memory for all of it", 0)
	end
end

--- What this process is to do, or nil in the one that the user started. In a file, because what is large does not fit the
-- environment.
function process.role()
	local fd = tonumber(os.getenv("SOFTMOON_ROLE"))
	if not fd then
		return nil
	end
	local text = readWhole(fd)
	C.close(fd)
	return serialize.load(text)
end

-- Start another Lua VM on `role`, a table that its main.lua finds in a file, the number of which is in the environment.
local function spawn(mainFile, role, arguments)
	local strings = { "luajit", mainFile }
	for _, argument in ipairs(arguments) do
		strings[#strings + 1] = tostring(argument)
	end
	local argv = ffi.new("char*[?]", #strings + 1)
	for i, text in ipairs(strings) do
		argv[i - 1] = ffi.cast("char*", text)
	end
	role.parent = C.getpid()
	local file = newFile("softmoon-role")
	writeWhole(file, serialize.dump(role))
	C.setenv("SOFTMOON_ROLE", tostring(file), 1)
	io.stdout:flush()
	io.stderr:flush()
	local pid = check(C.fork(), "cannot start a process")
	if pid == 0 then
		C.execv("/proc/self/exe", argv)
		C._exit(127)
	end
	C.close(file)
	return pid
end

--- In a new process: die with the parent, so that nothing outlives a run that was killed.
function process.followParent(role)
	C.prctl(PR_SET_PDEATHSIG, kernel.SIGKILL, 0, 0, 0)
	if C.getppid() ~= role.parent then
		C._exit(1)
	end
	kernel.sharpenSleep()
	shared.attach(role.shared)
end

local status = ffi.new("int[1]")

-- The exit code of a child as a shell tells it, or nil while it runs.
local function exitCode(pid, options)
	if C.waitpid(pid, status, options) ~= pid then
		return nil
	end
	local signal = bit.band(status[0], 0x7f)
	return signal == 0 and bit.band(bit.rshift(status[0], 8), 0xff) or 128 + signal
end

local function abort(master)
	io.stderr:write("Received more than one SIGINT/SIGTERM, aborting\n")
	C.kill(master, kernel.SIGKILL)
	exitCode(master, 0)
	C.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) -- an abort on request deserves no core dump
	C.abort()
end

--- Run the master task and pass signals on as the stop flag; returns the exit code. A second signal aborts.
function process.supervise(mainFile, role, arguments)
	local signals = ffi.new("struct softmoon_sigset")
	C.sigemptyset(signals)
	for _, signal in ipairs { kernel.SIGINT, kernel.SIGTERM, kernel.SIGCHLD } do
		C.sigaddset(signals, signal)
	end
	C.sigprocmask(SIG_BLOCK, signals, nil)
	role.shared = shared.create()
	local master = spawn(mainFile, role, arguments)
	while true do
		local signal = C.sigwaitinfo(signals, nil)
		if signal == kernel.SIGCHLD then
			local code = exitCode(master, WNOHANG)
			if code then return code end
		elseif signal > 0 and shared.signalled() then
			abort(master)
		end
	end
end

local Task = {}
Task.__index = Task

local tasks = {}

--- Start a task of the program; the arguments must be plain data, devices or queues.
function process.start(context, name, ...)
	local results = newFile("softmoon-results")
	local role = {
		task = name, program = context.program, shared = context.shared, devices = context.devices(),
		arguments = serialize.dump(...), results = results,
	}
	local task = setmetatable({ name = name, results = results }, Task)
	task.pid = spawn(context.mainFile, role, {})
	tasks[#tasks + 1] = task
	return task
end

--- Hand the results of a task to its master.
function process.storeResults(fd, ...)
	writeWhole(fd, serialize.dump(...))
end

function Task:isRunning()
	if not self.code then
		self.code = exitCode(self.pid, WNOHANG)
	end
	return self.code == nil
end

--- Wait for the task to end; returns what its function returned, nothing when it failed.
function Task:wait()
	while self:isRunning() do
		kernel.sleep(1e6)
	end
	local text = readWhole(self.results)
	if text ~= "" then
		return serialize.load(text)
	end
end

function process.waitForTasks()
	for _, task in ipairs(tasks) do
		task:wait()
	end
end

return process
