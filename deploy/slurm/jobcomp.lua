-- Written by Cellblock. Changes are overwritten.
-- slurmctld calls this function when a job has ended (jobcomp/lua, slurm.conf(5)).
--
-- slurmctld writes its own records down five seconds later. When it is killed before, it takes such a job for one that
-- runs, for ever if it is no batch job: end-ended-jobs, in the controller's image, reads what is written here.
-- A line a job: its number, when it ended, in seconds since 1970, its state (enum job_states, slurm.h), and its exit status as
-- of wait(2). Nothing of a line is a user's word.

local FILE = "/var/lib/slurm/slurmctld/ended-jobs"
-- In bytes; a job has some 20. The file before is kept.
local LARGEST = 1048576

function slurm_jobcomp_log_record(job)
    local file = io.open(FILE, "a")
    if file == nil then
        slurm.log_info("cannot write %s: if slurmctld is killed, jobs that have ended may seem to run", FILE)
        return slurm.SUCCESS
    end
    file:write(string.format("%d %d %d %d\n", job.job_id, job.end_time, job.job_state % 256, job.exit_code))
    local size = file:seek("end")
    file:close()
    if size > LARGEST then
        os.rename(FILE, FILE .. ".old")
    end
    return slurm.SUCCESS
end

return slurm.SUCCESS
