# A Redmine process that lives on, and does what it is told. Run by 'rails runner'.
#
# Commands on the standard input, a line each: 'run OPERATION SECONDS SEED'. It answers with a line for each operation (when it
# began and how long it took, in microseconds of the machine's monotonic clock), then 'done'. At the end of the input it ends.
#
# create: a new issue. process: ten issues, each created, commented, then given another status and assignee. Each step is what a
# request would do: it finds its user, project and issue anew, checks the settings' time stamp, and asks Redmine's permissions and
# workflow what may be changed.

require_relative 'common'

TEN = 10

class Office
  def initialize
    @projects = Project.active.order(:id).pluck(:id)
    managers = Role.givable.order(:position).first
    @managers = Member.joins(:member_roles).where(member_roles: { role_id: managers.id }).order(:id)
                      .pluck(:project_id, :user_id).group_by(&:first).transform_values { |rows| rows.map(&:last) }
    @people = Member.order(:id).pluck(:project_id, :user_id).group_by(&:first).transform_values { |rows| rows.map(&:last) }
    @priorities = IssuePriority.active.pluck(:id)
    @statuses = IssueStatus.order(:position).pluck(:id)
  end

  def create(random)
    project = @projects.sample(random: random)
    user = @managers[project].sample(random: random)
    new_issue(random, project, user)
  end

  def process(random)
    TEN.times do
      project = @projects.sample(random: random)
      user = @managers[project].sample(random: random)
      issue = new_issue(random, project, user)
      edit(issue, user, 'notes' => prose(random, random.rand(40..400)))
      others = @people[project]
      edit(issue, user, 'status_id' => @statuses[1..].sample(random: random).to_s,
                        'assigned_to_id' => others.sample(random: random).to_s)
    end
  end

  private

  # One request of a user.
  def request(user)
    RequestStore.clear!
    Setting.check_cache
    User.current = User.find(user)
    result = yield
    raise ActiveRecord::RecordNotSaved, result.errors.full_messages.join(', ') if result.errors.any?

    result.id
  ensure
    User.current = nil
  end

  def new_issue(random, project, user)
    request(user) do
      issue = Issue.new(project: Project.find(project), author: User.current)
      issue.safe_attributes = {
        'subject' => subject(random), 'description' => prose(random, random.rand(100..900)),
        'priority_id' => @priorities.sample(random: random).to_s, 'assigned_to_id' => @people[project].sample(random: random).to_s
      }
      issue.save
      issue
    end
  end

  def edit(id, user, attributes)
    request(user) do
      issue = Issue.visible.find(id)
      issue.init_journal(User.current)
      issue.safe_attributes = attributes
      issue.save
      issue
    end
  end
end

def now
  Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
end

# Draws and does operations until the time is over. One that met a deadlock is done again, and its time goes on.
def run(office, operation, seconds, seed)
  random = Random.new(seed)
  until_us = now + seconds * 1_000_000
  while (began = now) < until_us
    begin
      office.public_send(operation, random)
    rescue *REPEATED, ActiveRecord::StaleObjectError
      say('repeated')
      retry
    end
    say('op', began, now - began)
  end
end

office = Office.new
say('ready', ActiveRecord::Base.connection.select_value('SELECT CONNECTION_ID()'))
while (line = $stdin.gets)
  word, operation, seconds, seed = line.split
  begin
    raise ArgumentError, line unless word == 'run' && %w[create process].include?(operation)

    run(office, operation, Float(seconds), Integer(seed))
  rescue StandardError => e
    say_error(e)
  end
  say('done')
end
